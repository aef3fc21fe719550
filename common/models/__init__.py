"""Models and their numerics: towers, heads, optimisers, losses, and gradients of every order."""
