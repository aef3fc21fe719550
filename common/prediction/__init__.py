"""Messages of predictions."""
