"""The server's side of finding common rows."""
