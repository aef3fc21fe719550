"""Conversion of a column's cells to numbers."""
