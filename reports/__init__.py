"""What a run has left, for people: pages, tables, the live line."""
