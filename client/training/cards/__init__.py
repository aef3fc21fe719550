"""Scorecards, party side: optimal bins, weights of evidence, points."""
