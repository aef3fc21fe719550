"""Alignments that a member keeps for its next runs and predictions. See docs/kept_alignments.md."""
