"""What an attacker knows of columns beforehand: how the values of each are distributed, by itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Marginals:
    """The values of every column over the training rows, without the rows that they belong to.

    Args:
        values: float64 (rows, columns), every column ascending.
    """

    values: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Marginals:
        """From rows (n, columns)."""
        return cls(x.sort(0).values)

    @property
    def mean(self) -> Tensor:
        """Of every column, (columns,)."""
        return self.values.mean(0)

    def quantiles(self, count: int) -> Tensor:
        """Values at the middles of `count` equal shares, (count, columns)."""
        at = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        return torch.quantile(self.values, at, dim=0)

    def distance(self, x: Tensor) -> float:
        """How far the columns of some rows (n, columns) are from these distributions: 0 equal, of zeros about .8.

        Wasserstein's distance in standard deviations, the mean over the columns that vary.
        """
        spread = self.values.std(0, correction=0)
        varies = spread > 0
        apart = (x.sort(0).values - self.quantiles(len(x))).abs().mean(0)
        return float((apart[varies] / spread[varies]).clamp(max=10).mean())
