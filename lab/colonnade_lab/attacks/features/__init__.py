"""Inference of a party's features from its outputs or the joint predictions, by attackers that know its model."""
