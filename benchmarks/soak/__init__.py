"""`python -m benchmarks.soak --minutes 120 --out FOLDER`: a federation under continual trouble, and what is left of it.

A server and four parties, as processes over mutual TLS, train with blinded sums. Each party reaches the server through
a link of this program, which can cut or hold it. Troubles come on a seeded schedule; members that end are started
again with the same command, as a service manager does. At the end the run is held against one that was left alone.
"""
