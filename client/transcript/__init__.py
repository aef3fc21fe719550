"""A party's statements of what it was told and received, and their comparison with those of others."""
