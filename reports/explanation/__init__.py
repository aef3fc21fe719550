"""What a finished run says about its parties.

trained.py    the run opened again: both ends with what they had learned
findings.py   the numbers: heads' norms, accuracies with a party noised or missing
maps.py       embeddings in two dimensions        picture.py   bars and maps as SVG
page.py       explain.html                        keep.py      a run with fewer parties
"""
