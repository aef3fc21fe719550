"""Predictions, party side."""
