"""Comparison of protocols or runs: a recommendation, and the page of all."""
