"""A bottom model whose embeddings lie in the region of the privacy stage.

VFL-AFE (Mi et al. 2023, Section 3.1) clips embeddings into a ball of radius t and notes that noise for its diameter 2t
is excessive for embeddings that fill only part of it. The region can be fixed beforehand: vectors without negative
entries are at most a right angle apart, so within the same diameter they may be sqrt(2) times as long. On a sphere
every row has its full length. Crowded embeddings are enlarged (Eqs. 3 to 5), or by a variant that does not use private
rows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from colonnade.common.config.privacy import RegionName
from colonnade.common.models.pairwise import Moments, Spread

_MEMORY = 0.98  # of the moving average: about fifty batches
_LEAST_DIAMETER = 1e-9  # bound for embeddings that coincide
_LARGEST = 1e3

Rule = Literal["none", "paper", "released"]


class Rescale(nn.Module):
    """The factor 2t / (mu + 3 sd of the distances between embeddings), 1 before the first batch.

    `paper` uses the distances of every training batch itself. `released` uses those of earlier releases, corrected for
    noise: the receiver can compute it too, so it contains nothing private.

    Args:
        rule: `paper`, `released`, or none.
        t: half the diameter of the region.
        shrink: True if the factor may be below 1.
        deviation: that of the noise in releases.
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
        wanted = 2 * self._t / max(spread.diameter, _LEAST_DIAMETER)
        self.factor.fill_(min(max(wanted, self._least), _LARGEST))


_TINY = 1e-12  # length below which a row has no direction


def radius(region: RegionName, t: float) -> float:
    """The largest length of a row in a region of diameter 2t."""
    return t * math.sqrt(2) if region.startswith("positive") else t


def bring_into(region: RegionName, t: float, h: Tensor) -> Tensor:
    """Maps every row separately into the region: differentiable, (rows, width) in its dtype.

    Balls shorten rows that are too long, spheres give every row the full length (a row of zeros stays one), and
    positive regions set negative entries to 0. Rows already in the region do not change, up to rounding.

    Args:
        t: half its diameter.
        h: rows, all finite.
    """
    if region.startswith("positive"):
        h = torch.relu(h)
    lengths = torch.linalg.vector_norm(h, dim=1, keepdim=True)
    full = radius(region, t)
    shortest = full if region.endswith("ball") else _TINY
    within: Tensor = h * (full / lengths.clamp(min=shortest))
    return within


class Shape(nn.Module):
    """Brings embeddings into their region, enlarged if crowded; differentiable, and row by row except for the factor.

    Args:
        t: half its diameter.
        leaves: True if enlarged embeddings may leave the region, as in VFL-AFE.
    """

    def __init__(self, region: RegionName, t: float, rescale: Rescale, *, leaves: bool = False) -> None:
        super().__init__()
        self._region, self._t, self._leaves, self.rescale = region, t, leaves, rescale

    def forward(self, h: Tensor) -> Tensor:
        """(rows, width) -> the same shape: Algorithm 1 of VFL-AFE, lines 6 to 8."""
        inside = bring_into(self._region, self._t, h)
        grown = self.rescale.grown(inside)
        return grown if grown is inside or self._leaves else bring_into(self._region, self._t, grown)


class Shaped(nn.Module):
    """f, and then a shape: (rows, ...) -> (rows, width).

    Args:
        body: f.
        shape: applied to its outputs.
    """

    def __init__(self, body: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.body, self.shape = body, shape

    def forward(self, x: Tensor) -> Tensor:
        """Shaped embeddings, ready for the privacy stage."""
        h: Tensor = self.shape(self.body(x))
        return h
