"""Sums over parties whose summands the server cannot see."""
