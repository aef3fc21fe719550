"""Data sets that Colonnade knows by name."""
