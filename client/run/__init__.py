"""The party's process: its task, its sessions, its end."""
