"""The model card of a run: facts from the run, and what people have written in card.yaml."""
