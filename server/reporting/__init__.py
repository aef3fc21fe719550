"""What a run leaves: its summary and its timeline."""
