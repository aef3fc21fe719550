"""Releases of labels that a prediction makes more informative."""
