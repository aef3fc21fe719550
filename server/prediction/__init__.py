"""Predictions after a run: sessions, exchange, services."""
