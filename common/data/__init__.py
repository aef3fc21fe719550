"""Data that a party or the server reads at its start, and the split of rows and columns. Read sources.py first."""
