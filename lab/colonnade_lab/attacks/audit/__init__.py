"""Audits: lower bounds of a mechanism's epsilon from canaries, compared with its claim."""
