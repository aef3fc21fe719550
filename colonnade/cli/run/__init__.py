"""Commands that run a federation or predict with a trained one."""
