"""The page of a party's own folder: its columns, what left it, and what that cost. For its own eyes."""
