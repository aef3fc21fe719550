"""The messages of predictions."""
