"""A party's side of finding common rows."""
