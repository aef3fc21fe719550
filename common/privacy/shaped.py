"""A bottom model whose embeddings lie in the region of the privacy stage."""

from __future__ import annotations

from torch import Tensor, nn

from colonnade.common.config.privacy import RegionName
from colonnade.common.privacy.regions import bring_into
from colonnade.common.privacy.rescale import Rescale


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
