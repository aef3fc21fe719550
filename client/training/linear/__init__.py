"""Generalised linear models at a party: its columns as whole numbers, and its coefficients."""
