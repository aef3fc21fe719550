"""A party: its process, its task, its sessions, and the run pinned to its folder."""
