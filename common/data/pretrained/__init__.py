"""Pretrained towers, and the columns of texts or images that they read."""
