"""Reports of a run: its summary and its timeline."""
