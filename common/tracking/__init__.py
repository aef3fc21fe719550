"""Experiment trackers: their sections, the rule of what they may receive, and delivery that never holds up a run."""
