"""Sections of data sources."""
