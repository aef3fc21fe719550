"""The laboratory's commands, one file per command; their arguments are in `commands`."""
