"""The laboratory's commands: one file a command, and their arguments in `commands`."""
