"""Parts of `colonnade check`."""
