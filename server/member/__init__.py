"""The server: its process, the parties that are admitted, present or lost, its sessions, and what it reports."""
