"""Commands about keys, certificates, pins and tokens."""
