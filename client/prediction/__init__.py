"""A party's side of predictions."""
