"""Boosted trees: a party's columns as bins."""
