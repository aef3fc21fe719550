"""Privacy of labels: noise, budget, and noise on responses to parties."""
