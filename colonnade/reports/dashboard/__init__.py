"""`colonnade up --dashboard`: the report of a live run, served to browsers."""
