"""A whole federation in one process on the virtual clock."""
