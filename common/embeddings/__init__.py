"""Adjustment of embeddings: the terms that parties add to their loss, and the distances that these use."""
