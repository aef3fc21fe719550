"""Towers with weights made elsewhere, and the columns of texts or images that they read."""
