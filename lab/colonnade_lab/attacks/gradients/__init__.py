"""Labels from cut-layer gradients: scores of single rows, and reconstruction batch by batch."""
