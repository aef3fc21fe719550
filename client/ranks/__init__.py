"""A party of several processes under torchrun: rank 0 is the party, the others compute shares of its batches.

What comes in: the group of processes and the one seam of the bottom model, `Backprop`. Nothing here knows the server,
the table, keys or the ledger: those are rank 0's alone.
"""
