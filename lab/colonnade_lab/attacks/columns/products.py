"""Inner products of rows, from the gradients that the server sent and the embeddings that followed.

A linear layer that descends along gradients G of its outputs changes by -eta G'X, so that its output for a row x
changes by -eta G'Xx: by the products of x with the rows of the batch. The server knows every G. It solves for the first
weights and for rows up to a rotation, which leaves all products unchanged. A deeper model is treated as a linear one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.config.optimisers import OptimiserConfig, SgdConfig
from colonnade_lab.attacks.columns.sight import Sight

_STEPS = 100
_RIDGE = 1e-6


def rotated_rows(sight: Sight, seed: int) -> Tensor:
    """Estimates rows, float64 (n, columns), which equal the true ones up to a rotation."""
    decay, sums = _past(sight)
    rows, width, columns = len(sight.rows), sight.width, sight.columns
    draws = torch.Generator().manual_seed(seed)
    x = _guess(sight, draws).requires_grad_()
    begun = (torch.randn(width, columns + 1, generator=draws, dtype=torch.float64) / columns**0.5).requires_grad_()
    ones = torch.full((rows, 1), len(sight.members) ** 0.5, dtype=torch.float64)  # every member has a bias
    said = torch.cat([one.said for one in sight.seen])
    scale = said.square().mean().clamp(min=1e-30)
    optimiser = torch.optim.LBFGS([x, begun], max_iter=_STEPS, history_size=20, line_search_fn="strong_wolfe")

    def misfit() -> Tensor:
        optimiser.zero_grad()
        whole = torch.cat([x, ones], dim=1)
        moved = (whole.T @ sums).view(columns + 1, len(decay), width)  # X'C of every exchange
        weights = decay[:, None, None] * begun.T - moved.movedim(1, 0)  # (exchanges, columns + 1, width)
        made = torch.cat([whole[one.rows] @ weight for one, weight in zip(sight.seen, weights, strict=True)])
        loss: Tensor = (made - said).square().mean() / scale + _RIDGE * (x.square().mean() + begun.square().mean())
        torch.autograd.backward(loss)
        return loss

    optimiser.step(misfit)  # type: ignore[no-untyped-call]
    return x.detach()


def _guess(sight: Sight, draws: torch.Generator) -> Tensor:
    """Starts from principal components of each row's messages, padded with small random numbers."""
    first = torch.zeros(len(sight.rows), sight.width, dtype=torch.float64)
    for one in reversed(sight.seen):
        first[one.rows] = one.said
    left, sizes, _ = torch.linalg.svd(first - first.mean(0), full_matrices=False)
    x = 0.3 * torch.randn(len(first), sight.columns, generator=draws, dtype=torch.float64)
    count = min(sight.columns, len(sizes))
    x[:, :count] += left[:, :count] * sizes[:count] / sizes[:1].clamp(min=1e-30) * len(first) ** 0.5
    return x


def _past(sight: Sight) -> tuple[Tensor, Tensor]:
    """Expresses the weights before every exchange by the first ones W and the rows X, as a W - X'C.

    Returns a, (exchanges,), and C side by side, (rows, exchanges * width).
    """
    rate, momentum, decay = _descent(sight.members[0].optimiser)
    a, speed_a = 1.0, 0.0
    c = torch.zeros(len(sight.rows), sight.width, dtype=torch.float64)
    speed_c = torch.zeros_like(c)
    every_a, every_c = [], []
    for one in sight.seen:
        every_a.append(a)
        every_c.append(c.clone())
        if one.gradient is None:
            continue
        speed_a = momentum * speed_a + decay * a
        speed_c = momentum * speed_c - decay * c
        speed_c[one.rows] += one.gradient
        a, c = a - rate * speed_a, c + rate * speed_c
    return torch.tensor(every_a, dtype=torch.float64), torch.cat(every_c, dim=1)


def _descent(config: OptimiserConfig) -> tuple[float, float, float]:
    """Returns rate, momentum and weight decay; other optimisers' steps count as plain descent."""
    if isinstance(config, SgdConfig):
        return config.lr, config.momentum, config.weight_decay
    return config.lr, 0.0, 0.0
