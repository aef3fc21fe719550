"""Regression targets, standardised on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from colonnade.common.errors import DataError


@dataclass(frozen=True)
class TargetScale:
    """(y - mean) / deviation of every target, and back; both in the targets' own units, float64 (targets,)."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, values: Tensor, train_rows: Tensor) -> TargetScale:
        """Fits on the training rows, int64 (m,), of values (n, targets). Raises DataError if a target is constant
        there.
        """
        known = values[train_rows].to(torch.float64)
        deviation = known.std(dim=0, correction=0)
        # The deviation of a constant such as 0.1 may be a rounding error above 0.
        if bool((constant := (known == known[0]).all(dim=0) | (deviation == 0)).any()):
            number = int(constant.nonzero()[0])
            raise DataError(
                f"target {number + 1} is {known[0, number].item():g} in all {len(known)} training rows",
                hint="there is nothing to learn of it: name another column in server.labels",
            )
        return cls(known.mean(dim=0), deviation)

    def apply(self, values: Tensor) -> Tensor:
        """(rows, targets) as the model is trained on them, float32."""
        return ((values.to(torch.float64) - self.mean.to(values.device)) / self.deviation.to(values.device)).float()

    def undo(self, values: Tensor) -> Tensor:
        """Model outputs (rows, targets) in the targets' own units, float64."""
        return values.to(torch.float64) * self.deviation.to(values.device) + self.mean.to(values.device)

    def record(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}


class CountScale(TargetScale):
    """Counts stay as they are: a model's outputs are their means."""

    def apply(self, values: Tensor) -> Tensor:
        return values.float()

    def undo(self, values: Tensor) -> Tensor:
        return values.to(torch.float64)
