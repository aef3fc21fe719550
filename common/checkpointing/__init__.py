"""Data that outlives a process: states, checkpoints, and results computed once a run."""
