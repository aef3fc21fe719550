"""Reproduction of the papers' results, comparison of protocols on one task, and attacks on runs."""
