"""The attacker's prior of rows: mean, principal components and range of the rows that it knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.models.optimiser import build_optimiser

_RATE = 0.05
_LEAST = 1e-6  # relative to the largest variance: directions below it are dropped


@dataclass(frozen=True)
class Prior:
    """A normal distribution of rows, and the range of each number.

    Args:
        mean: float32 (width,).
        basis: principal directions times their standard deviations, float32 (components, width).
        lowest, highest: of each number, float32 (width,).
    """

    mean: Tensor
    basis: Tensor
    lowest: Tensor
    highest: Tensor

    @classmethod
    def of(cls, known: Tensor) -> Prior:
        flat = known.flatten(1)
        mean = flat.mean(0)
        _, sizes, directions = torch.linalg.svd((flat - mean).double(), full_matrices=False)
        kept = sizes.square() > _LEAST * sizes.square().max()
        basis = directions[kept] * sizes[kept, None] / max(len(flat) - 1, 1) ** 0.5
        return cls(mean, basis.float(), flat.min(0).values, flat.max(0).values)

    def rows(self, z: Tensor) -> Tensor:
        """Maps coordinates, float32 (n, components), to rows, (n, width)."""
        return self.mean + z @ self.basis

    def within(self, rows: Tensor) -> Tensor:
        """Clamps every number of rows (n, width) to its range."""
        return rows.clamp(self.lowest, self.highest)


def likeliest(prior: Prior, misfit: Callable[[Tensor], Tensor], rows: int, weight: float, steps: int) -> Tensor:
    """Finds rows that explain the messages and are likely a priori, float32 (rows, width), by Adam on their
    coordinates.

    Args:
        misfit: maps rows (n, width) to (n,), 0 where they explain everything.
        weight: of the squared norm of a row's coordinates against its misfit.
    """
    z = nn.Parameter(torch.zeros(rows, len(prior.basis)))
    optimiser = build_optimiser(AdamConfig(lr=_RATE), [z])
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward((misfit(prior.rows(z)) + weight * z.square().sum(1)).sum())
        optimiser.step()
    return prior.within(prior.rows(z.detach()))
