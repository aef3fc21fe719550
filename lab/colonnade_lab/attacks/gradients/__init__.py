"""Labels from the gradients of a cut layer: scores of single rows, and reconstruction batch by batch."""
