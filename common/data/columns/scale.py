"""Scaling of a party's values before they reach a model.

Every scaling is (x - shift) / spread with one shift and one spread for all values or per column; the methods differ in
how the two are found. Fits use training rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

_BYTE = 255.0


class MeanStd(BaseModel):
    """A fixed mean and standard deviation, in units of 0..1 for bytes (MNIST: .1307 and .3081)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float = Field(description="the mean; of bytes, in units of 0 to 1")
    std: float = Field(gt=0, description="the standard deviation; of bytes, in units of 0 to 1")


ScaleConfig = Literal["none", "unit", "standard"] | MeanStd
"""
none: as they are.
unit: bytes / 255; other values / the column's largest magnitude, so that they lie in -1..1.
standard: every column gets mean 0 and (population) standard deviation 1; constant ones only the first.
{mean, std}: ((x / 255) - mean) / std for bytes, (x - mean) / std for other values.
"""


@dataclass(frozen=True)
class Scaler:
    """(x - shift) / spread.

    Args:
        shift: a scalar, or the shape of one row.
        spread: likewise, nowhere 0.
    """

    shift: Tensor
    spread: Tensor

    @classmethod
    def fit(cls, scale: ScaleConfig, values: Tensor, train_rows: Tensor) -> Scaler:
        """Finds shift and spread.

        Args:
            scale: the method.
            values: (n, ...), bytes or floats.
            train_rows: (m,) int64; no other row of `values` is read.
        """
        reads = scale == "standard" or (scale == "unit" and values.dtype != torch.uint8)
        return cls.of_all(scale, values[train_rows] if reads else values)

    @classmethod
    def of_all(cls, scale: ScaleConfig, values: Tensor) -> Scaler:
        """The same of training rows alone, (m, ...)."""
        unit = _BYTE if values.dtype == torch.uint8 else 1.0
        match scale:
            case MeanStd(mean=mean, std=std):
                return cls(torch.tensor(mean * unit), torch.tensor(std * unit))
            case "standard":
                # Sums of another layout may be rounded otherwise.
                std_, mean_ = torch.std_mean(_floats(values.contiguous()), dim=0, correction=0)
                return cls(mean_, _no_zeros(std_))
            case "unit" if unit == 1.0:
                return cls(torch.tensor(0.0), _no_zeros(values.abs().amax(dim=0)))
            case "unit":
                return cls(torch.tensor(0.0), torch.tensor(unit))
            case "none":
                return cls.none()

    @classmethod
    def none(cls) -> Scaler:
        """Leaves values as they are."""
        return cls(torch.tensor(0.0), torch.tensor(1.0))

    @property
    def idle(self) -> bool:
        """True if values stay as they are."""
        return self.shift.ndim == self.spread.ndim == 0 and self.shift.item() == 0 and self.spread.item() == 1

    def apply(self, values: Tensor) -> Tensor:
        """The scaled values, float32, in the shape of `values` (n, ...)."""
        return _floats(values, copy=True).sub_(self.shift).div_(self.spread).to(torch.float32)


class Columns:
    """A party's values of all rows, scaled: `columns[rows]` is float32 (m, ...) on their device.

    Bytes stay bytes and are scaled on access, to the same numbers: one of 14 parties of MNIST holds 4 MB instead of 16.

    Args:
        values: (n, ...), bytes or floats, from the source.
        scaler: fitted on the training rows.
    """

    def __init__(self, values: Tensor, scaler: Scaler) -> None:
        self._lazy = values.dtype == torch.uint8
        ready = self._lazy or (values.dtype == torch.float32 and scaler.idle)
        self._values = values if ready else scaler.apply(values)
        self._scaler = scaler

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, ...)."""
        return tuple(self._values.shape)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The scaled values of these rows, float32 (m, ...).

        Args:
            rows: row numbers, int64 (m,).
        """
        found = self._values[rows]
        return self._scaler.apply(found) if self._lazy else found

    def to(self, device: torch.device) -> Columns:
        """The same on a device."""
        self._values = self._values.to(device)
        self._scaler = Scaler(self._scaler.shift.to(device), self._scaler.spread.to(device))
        return self


def _floats(values: Tensor, *, copy: bool = False) -> Tensor:
    # Tables are float64 until they are scaled: a time stamp has more than 24 bits.
    return values.to(torch.float32 if values.dtype == torch.uint8 else values.dtype, copy=copy)


def _no_zeros(spread: Tensor) -> Tensor:
    return torch.where(spread == 0, 1.0, spread)
