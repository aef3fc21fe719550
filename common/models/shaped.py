"""A bottom model whose embeddings lie in the region that the privacy stage allows."""

from __future__ import annotations

from torch import Tensor, nn

from colonnade.common.privacy.regions import RegionName, bring_into
from colonnade.common.privacy.rescale import Rescale


class Shape(nn.Module):
    """Embeddings into their region, grown if they crowd together; differentiable, and row by row but for the factor.

    Args:
        region: which.
        t: half its diameter.
        rescale: the factor.
        leaves: whether what has grown may leave the region, as VFL-AFE has it.
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
        shape: what its outputs go through.
    """

    def __init__(self, body: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.body, self.shape = body, shape

    def forward(self, x: Tensor) -> Tensor:
        """What is protected and leaves."""
        h: Tensor = self.shape(self.body(x))
        return h
