"""Boosted trees at the server: splits, the forest, and sums over the parties' bins."""
