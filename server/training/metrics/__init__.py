"""Metrics of predictions, and the best evaluation of a run."""
