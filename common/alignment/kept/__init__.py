"""Alignments that a member keeps for its next runs and predictions. See docs/alignment.md."""
