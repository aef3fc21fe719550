"""Labels: noise, budget, and protection of responses to parties."""
