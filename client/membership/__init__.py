"""The connection to the server, and the run that a folder belongs to."""
