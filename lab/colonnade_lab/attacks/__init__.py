"""Attacks by curious members on the captured messages of their own runs (docs/attackers.md)."""
