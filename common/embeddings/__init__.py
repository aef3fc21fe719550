"""What shapes embeddings: the terms that parties add to their loss, and the distances behind them."""
