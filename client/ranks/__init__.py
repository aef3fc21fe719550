"""A party of several processes under torchrun: rank 0 is the party, the others compute shares of its batches.

Contains the process group and `Backprop` over it. The server, the table, keys and the ledger belong to rank 0 alone.
"""
