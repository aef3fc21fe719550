"""Commands that write a working start: a package with a protocol, or a federation with example tables."""
