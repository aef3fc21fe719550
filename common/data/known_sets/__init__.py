"""The data sets that Colonnade knows by name."""
