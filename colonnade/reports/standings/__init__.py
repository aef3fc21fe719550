"""Protocols or runs beside each other: the one that is recommended, and the page of all."""
