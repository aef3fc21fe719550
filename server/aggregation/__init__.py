"""Sums over the parties: in the clear, masked, coded."""
