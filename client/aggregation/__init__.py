"""A party's side of sums: masked, coded."""
