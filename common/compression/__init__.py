"""Tensors in fewer bytes."""
