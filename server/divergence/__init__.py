"""Divergence of a training: what grows, who began, and what is still sound."""
