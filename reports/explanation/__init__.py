"""Importance of the parties of a finished run.

trained.py    the run opened again: server and party models with their weights
findings.py   the numbers: heads' norms, accuracies with a party noised or missing
maps.py       embeddings in two dimensions        picture.py   bars and maps as SVG
page.py       explain.html                        keep.py      a run with fewer parties
"""
