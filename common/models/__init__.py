"""Models, built from the sections of common/config/models.py and optimisers.py: towers, heads, and their optimisers."""
