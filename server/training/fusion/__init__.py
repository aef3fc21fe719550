"""Joint models: from the parties' embeddings or logits to predictions."""
