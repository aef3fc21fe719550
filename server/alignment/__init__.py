"""Alignment of common rows, server side."""
