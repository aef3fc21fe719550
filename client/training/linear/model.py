"""A party's part of a linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.client.training.linear.design import STEP, Floats
from colonnade.client.training.local import Local
from colonnade.common.data.columns.scale import Columns


class LinearModel(Local):
    """A party's logits by its coefficients of the encoded columns, float64 (columns, logits).

    Args:
        mean: of the columns, float64 (columns,).
        digits: which of them are rounded, (columns,).
    """

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__(LinearPart(digits, mean, coefficients))
        self.coefficients, self._mean = coefficients, mean

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:
        """As `Local.of_rows`, on the CPU: in double precision, and the same wherever a party computes."""
        found: Tensor = self(features[rows].cpu())
        return found

    def record(self) -> dict[str, Any]:
        """Coefficients of the encoded columns, a list of one for each logit, and the means that are taken off first."""
        return {"coefficients": self.coefficients.tolist(), "means": self._mean.tolist()}


class LinearPart(nn.Module):
    """(X - mean) B in double precision, with the columns of digits rounded as in training."""

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__()
        self.digits, self.mean, self.coefficients = (
            nn.Buffer(torch.from_numpy(each)) for each in (digits, mean, coefficients)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> float32 (rows, logits)."""
        x = x.flatten(1).double()
        x = torch.where(self.digits, torch.round(x / STEP) * STEP, x)
        return ((x - self.mean) @ self.coefficients).float()
