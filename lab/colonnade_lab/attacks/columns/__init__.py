"""A party's columns from what a curious server sees of training: five attackers, and what each is worth."""
