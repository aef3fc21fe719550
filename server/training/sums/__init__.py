"""Sums under encryption over the parties' matrices: sessions, and sums that go back to their owners."""
