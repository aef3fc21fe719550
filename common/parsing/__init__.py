"""Parsing of a YAML file into a validated configuration, with errors that name key, value and remedy."""
