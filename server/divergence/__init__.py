"""Divergence of training: which values grow, which member began, and which checkpoints are sound."""
