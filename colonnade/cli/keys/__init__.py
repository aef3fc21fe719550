"""Commands about keys, certificates and tokens."""
