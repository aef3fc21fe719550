"""The built-in bottom models."""
