"""A party's features from what is released of it, by attackers that know its model."""
