"""From the cells of a column to numbers."""
