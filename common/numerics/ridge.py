"""A party's part of linear ADMM in closed form.

Source: Hu et al., "Learning Privately over Distributed Features: An ADMM Sharing Approach" (2019), with the penalty of
the sharing problem (Boyd et al., "Distributed Optimization and Statistical Learning via ADMM", 2011, Section 7.3).
"""

from __future__ import annotations

import torch
from torch import Tensor


class Ridge:
    """argmin_W β/2 ‖W‖² + ⟨g, D W⟩ + σ/2b ‖D (W − W₀)‖², for one D and any number of g and W₀.

    The normal equations (σ/b D'D + β I) W = σ/b D'D W₀ − D'g are factorised once, in float64: where columns repeat each
    other, β alone keeps them regular.

    Args:
        inputs: D, float32 (b, d).
        sigma: σ > 0; M ρ, where M parties move at once.
        beta: β > 0.
    """

    def __init__(self, inputs: Tensor, sigma: float, beta: float) -> None:
        self.inputs = inputs
        wide = inputs.double()
        self._pull = wide.t() @ wide * (sigma / len(inputs))
        shift = beta * torch.eye(inputs.shape[1], dtype=wide.dtype, device=wide.device)
        self._factor = torch.linalg.cholesky(self._pull + shift)

    def solve(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """The minimiser W, float32 (d, c), from W₀, float32 (d, c), and g, float32 (b, c)."""
        pulled = self._pull @ weights.double() - (self.inputs.t() @ gradient).double()
        return torch.cholesky_solve(pulled, self._factor).to(weights.dtype)
