"""Predictions after a run: sessions with the parties, the exchange, and services for callers."""
