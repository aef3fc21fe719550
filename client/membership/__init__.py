"""The connection to the server, and the run pinned to a folder."""
