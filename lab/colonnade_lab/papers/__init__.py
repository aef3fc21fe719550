"""The tables of the papers compared with ours: their cells, the runs, and pages about them."""
