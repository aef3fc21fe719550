"""Lagrange coded computing: shares that can be computed on."""
