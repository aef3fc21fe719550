"""Sums under encryption: a server learns sums of its own numbers over a party's columns; the party learns no number."""
