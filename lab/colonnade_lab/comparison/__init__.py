"""Comparison of all protocols on one task: the plan, the results, and their pages."""
