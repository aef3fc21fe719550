"""Built-in bottom models."""
