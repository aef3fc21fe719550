"""From the parties' embeddings or logits to a joint model."""
