"""The page of a run's folder: one file per section, assembled by page.py."""
