"""An attacker's prior knowledge of columns: the distribution of each column by itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Marginals:
    """Sorted values of every column over the training rows, float64 (rows, columns), not assigned to rows."""

    values: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Marginals:
        return cls(x.sort(0).values)

    @property
    def mean(self) -> Tensor:
        return self.values.mean(0)

    def quantiles(self, count: int) -> Tensor:
        """Returns the values at the middles of `count` equal shares, (count, columns)."""
        at = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        return torch.quantile(self.values, at, dim=0)

    def distance(self, x: Tensor) -> float:
        """Distance of some rows' columns (n, columns) from these distributions: 0 if equal; zeros give about .8.

        This is Wasserstein's distance in standard deviations, averaged over the columns that vary.
        """
        spread = self.values.std(0, correction=0)
        varies = spread > 0
        apart = (x.sort(0).values - self.quantiles(len(x))).abs().mean(0)
        return float((apart[varies] / spread[varies]).clamp(max=10).mean())
