"""Alignment of the rows that all members hold: private set intersection by keys. See docs/alignment.md."""
