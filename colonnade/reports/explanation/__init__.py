"""Importance of the parties of a finished run."""
