"""`colonnade check`."""
