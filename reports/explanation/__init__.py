"""Importance of the parties of a finished run.

trained.py    the run opened again: server and party models with their weights
findings.py   the numbers: measures without a party or with it noised, heads' norms
maps.py       embeddings in two dimensions        picture.py   bars and maps as SVG
page.py       explain.html                        keep.py      a run with fewer parties
"""
