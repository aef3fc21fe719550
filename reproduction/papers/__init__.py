"""The tables of the papers beside our own: which cells there are, what has been run, and pages about it."""
