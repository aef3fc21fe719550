"""Sums under encryption over a party's matrix: its sessions, and sums that are returned to it."""
