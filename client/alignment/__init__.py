"""Alignment of common rows, party side."""
