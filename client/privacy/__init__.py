"""Egress of a party, and the noise on it."""
