"""Commands that write a working start: a protocol in a package of its own, a federation with example tables."""
