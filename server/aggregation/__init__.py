"""Sums over the parties: in the clear, masked, or coded."""
