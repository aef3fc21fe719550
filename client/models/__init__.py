"""A party's own models."""
