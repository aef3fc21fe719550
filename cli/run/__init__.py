"""Commands that run a federation or ask a trained one."""
