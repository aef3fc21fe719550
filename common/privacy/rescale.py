"""Enlargement of crowded embeddings: VFL-AFE, Eqs. 3 to 5, and a variant that does not use private rows."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from colonnade.common.models.pairwise import Moments, Spread

_MEMORY = 0.98  # of the moving average: about fifty batches
_TINY = 1e-9  # bound for embeddings that coincide
_LARGEST = 1e3

Rule = Literal["none", "paper", "released"]


class Rescale(nn.Module):
    """The factor 2t / (mu + 3 sd of the distances between embeddings), 1 before the first batch.

    `paper` uses the distances of every training batch itself. `released` uses those of earlier releases, corrected for
    noise: the receiver can compute the same, so it contains nothing private.

    Args:
        rule: `paper`, `released`, or none.
        t: half the diameter of the region.
        shrink: True if the factor may be below 1.
        deviation: of the noise in releases.
    """

    factor: Tensor
    moments: Tensor

    def __init__(self, rule: Rule, t: float, deviation: float, *, shrink: bool = False) -> None:
        super().__init__()
        self._rule, self._t, self._least, self._deviation = rule, t, 0.0 if shrink else 1.0, deviation
        self.register_buffer("factor", torch.ones((), dtype=torch.float64))
        self.register_buffer("moments", torch.zeros(3, dtype=torch.float64))  # m2 and v2 before growth; their weight

    def grown(self, h: Tensor) -> Tensor:
        """Embeddings (rows, width) times the factor; in training, `paper` first updates it from them."""
        if self._rule == "none":
            return h
        if self._rule == "paper" and self.training and len(h) > 1:  # an epoch may end with a single row
            self._learn(Spread.of(h))
        return h * float(self.factor)

    def observe(self, released: Tensor) -> None:
        """Updates the factor from a training batch as released, (rows, width)."""
        if self._rule != "released" or len(released) < 2:  # a single row has no distances
            return
        seen, grown = Moments.released(released, self._deviation), float(self.factor)
        before = torch.tensor([seen.mean / grown**2, seen.variance / grown**4, 1.0], dtype=torch.float64)
        self.moments.lerp_(before.to(self.moments.device), 1 - _MEMORY)
        mean, variance, weight = self.moments.tolist()
        self._learn(Moments(mean / weight, variance / weight).spread())

    def _learn(self, spread: Spread) -> None:
        wanted = 2 * self._t / max(spread.diameter, _TINY)
        self.factor.fill_(min(max(wanted, self._least), _LARGEST))
