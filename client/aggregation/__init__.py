"""Sums over the parties, party side: masked, coded."""
