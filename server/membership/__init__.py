"""The parties of a run: admission, presence and loss."""
