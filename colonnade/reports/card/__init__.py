"""The model card of a run: what the run knows, and what people have written in card.yaml."""
