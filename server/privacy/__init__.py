"""Labels: noise, budget, and what goes back to parties."""
