"""Commands that compare protocols, repeat papers and attack runs."""
