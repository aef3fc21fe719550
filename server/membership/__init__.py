"""The parties of a run: who may join, who is here, who was lost."""
