"""Epsilon: what releases cost, what was spent, and the ledger of what left."""
