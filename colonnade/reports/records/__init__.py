"""A run's folder, read."""
