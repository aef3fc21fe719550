"""Sums over parties of which the server sees no part."""
