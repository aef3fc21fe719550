"""Which rows all members have: private set intersection by keys. See docs/alignment.md."""
