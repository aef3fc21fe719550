"""Commands that read the results of a run."""
