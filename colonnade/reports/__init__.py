"""Reports on runs: pages, tables, the live line."""
