"""What outlives a process: states, checkpoints, and what is made once a run."""
