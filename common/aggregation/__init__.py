"""Sums that hide their parts: fields and rings, masks, secret sharing, Lagrange coded computing."""
