"""Boosted trees, server side: splits, the forest, and sums over the parties' bins."""
