"""The server's process of a training run: its start, its sessions, its end."""
