"""Compression of tensors."""
