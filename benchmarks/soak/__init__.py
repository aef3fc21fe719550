"""`python -m benchmarks.soak --minutes 120 --out FOLDER`: a federation under continual trouble, and its results.

A server and four parties, as processes over mutual TLS, train with blinded sums. Each party reaches the server through
a link of this program, which can cut or hold it. Troubles follow a seeded schedule; members that end are restarted with
the same command, as by a service manager. At the end the run is compared with an undisturbed one.
"""
