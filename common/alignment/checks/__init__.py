"""Checks of an alignment among members who may lie. See docs/alignment_checks.md."""
