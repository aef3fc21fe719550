"""Reconstruction of a party's columns from what a curious server sees of training, by five attackers."""
