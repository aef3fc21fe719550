"""Scaling of a party's values before they reach a model.

Every scaling is (x - shift) / spread, with one shift and one spread for all values or per column. `auto` bends
long-tailed columns first. Fits use training rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import MeanStd, ScaleConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import Doubt

_BYTE = 255.0
_TABLE = 2  # axes: rows and columns


_TAIL = 10.0  # deviations: of normal values not one in 10^23 lies so far out
_DISTINCT = 50  # values of a column, at least, for its largest to be a tail rather than a rare code
_TOGETHER = 16  # columns that are bent at a time: of all of them a copy of a large table would be made
_FIRST = 1000  # rows in which a column of amounts shows that its values vary
_DEVIATION = 1.349  # of normal values: width of the middle half, in standard deviations


@dataclass(frozen=True)
class Bends:
    """asinh((x - centre) / width) of the columns with a long tail: straight near the centre, logarithmic far from it.

    Args:
        columns: their places, int64 (k,).
        centre: their medians, (k,).
        width: their deviations without the tail, (k,), nowhere 0.
    """

    columns: Tensor
    centre: Tensor
    width: Tensor

    @classmethod
    def fit(cls, values: Tensor, std: Tensor, mean: Tensor) -> Bends | None:
        """Fits to training rows, floats (m, columns), of these deviations and means; None if no column has a long
        tail.
        """
        far = (values.amax(0) - mean).maximum(mean - values.amin(0)) > _TAIL * std
        tailed = [place for place in far.nonzero().flatten().tolist() if varied(values[:, place].contiguous())]
        if not tailed:
            return None
        found = [_middle(values[:, place]) for place in tailed]
        centre, width = (torch.tensor(each, dtype=values.dtype) for each in zip(*found, strict=True))
        return cls(torch.tensor(tailed), centre, width)

    def apply(self, values: Tensor) -> Tensor:
        """Changes these columns of (n, columns) in place, and returns it."""
        for start in range(0, len(self.columns), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            places, centre, width = self.columns[some], self.centre[some], self.width[some]
            values[:, places] = values[:, places].sub_(centre).div_(width).asinh_()
        return values

    def to(self, device: torch.device) -> Bends:
        return Bends(self.columns.to(device), self.centre.to(device), self.width.to(device))


@dataclass(frozen=True)
class Scaler:
    """(x - shift) / spread, after the bends; both are scalars or of the shape of one row, spread nowhere 0."""

    shift: Tensor
    spread: Tensor
    bends: Bends | None = None

    @classmethod
    def fit(cls, scale: ScaleConfig, values: Tensor, train_rows: Tensor) -> Scaler:
        """Finds shift and spread of values (n, ...), bytes or floats, from the rows `train_rows`, (m,) int64, alone."""
        reads = scale in ("standard", "auto") or (scale == "unit" and values.dtype != torch.uint8)
        return cls.of_all(scale, values[train_rows] if reads else values)

    @classmethod
    def of_all(cls, scale: ScaleConfig, values: Tensor) -> Scaler:
        """`fit` on training rows alone, (m, ...)."""
        unit = _BYTE if values.dtype == torch.uint8 else 1.0
        match scale:
            case MeanStd(mean=mean, std=std):
                return cls(torch.tensor(mean * unit), torch.tensor(std * unit))
            case "auto" if values.ndim == _TABLE and values.dtype != torch.uint8 and len(values):
                moments = _std_mean(values)
                bends = Bends.fit(values, *moments)
                return _standard(moments if bends is None else _std_mean(bends.apply(values.clone())), bends)
            case "standard" | "auto":
                return _standard(_std_mean(values))
            case "unit" if unit == 1.0:
                return cls(torch.tensor(0.0), _no_zeros(values.abs().amax(dim=0)))
            case "unit":
                return cls(torch.tensor(0.0), torch.tensor(unit))
            case "none":
                return cls.none()

    @classmethod
    def none(cls) -> Scaler:
        return cls(torch.tensor(0.0), torch.tensor(1.0))

    @property
    def idle(self) -> bool:
        return (
            not self.bends
            and self.shift.ndim == self.spread.ndim == 0
            and self.shift.item() == 0
            and self.spread.item() == 1
        )

    def apply(self, values: Tensor) -> Tensor:
        """The scaled values, float32, in the shape of `values` (n, ...)."""
        found = _floats(values, copy=True)
        if self.bends:
            found = self.bends.apply(found)
        return found.sub_(self.shift).div_(self.spread).to(torch.float32)

    def to(self, device: torch.device) -> Scaler:
        return Scaler(self.shift.to(device), self.spread.to(device), self.bends and self.bends.to(device))


class Columns:
    """A party's values of all rows, scaled: `columns[rows]` is float32 (m, ...) on their device.

    Bytes stay bytes and are scaled on access, to the same numbers: one of 14 parties of MNIST holds 4 MB instead of 16.

    Args:
        table: the rows that the values are of, not encoded, for protocols that are `typed`: the values stay as they
            are and on the CPU.
        names: of the values of a row, each with that of its column in the table; none if they are not known.

    Attributes:
        doubts: what is odd about them once the training rows are known.
    """

    def __init__(
        self, values: Tensor, scaler: Scaler, table: Features | None = None, names: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.table, self.names = table, names
        self.doubts: tuple[Doubt, ...] = ()
        self._lazy = values.dtype == torch.uint8
        ready = self._lazy or table is not None or (values.dtype == torch.float32 and scaler.idle)
        self.values = values if ready else scaler.apply(values)
        self._scaler = scaler

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Raises IndexError if one of the rows, int64 (m,), is none of these: numbers below 0 are not counted from the
        end.
        """
        found = self.values.index_select(0, rows.to(self.values.device))  # a fifth of the time of values[rows]
        return self._scaler.apply(found) if self._lazy else found

    def to(self, device: torch.device) -> Columns:
        if self.table is None:
            self.values = self.values.to(device)
            self._scaler = self._scaler.to(device)
        return self


def _standard(moments: tuple[Tensor, Tensor], bends: Bends | None = None) -> Scaler:
    std, mean = moments
    return Scaler(mean, _no_zeros(std), bends)


def _std_mean(values: Tensor) -> tuple[Tensor, Tensor]:
    # Sums of another layout may be rounded otherwise.
    return torch.std_mean(_floats(values.contiguous()), dim=0, correction=0)


def varied(column: Tensor) -> bool:
    """True if a column (m,) has 50 different values: its largest may be a tail, and is no rare word or code."""
    # Sorting all of it to count them would take far longer.
    if len(torch.unique(column[:_FIRST])) >= _DISTINCT:
        return True
    for _ in range(_DISTINCT - 1):
        column = column[column != column[0]]
        if not len(column):
            return False
    return True


def _middle(column: Tensor) -> tuple[float, float]:
    """The median, and the deviation of normal values with the same middle half.

    If more than half of the values are one number, mostly 0, the width comes from the others.
    """
    found = column.cpu().numpy()
    low, centre, high = np.quantile(found, (0.25, 0.5, 0.75))
    apart = np.abs(found - centre)
    others = apart[apart > 0]
    width = np.median(others) if 2 * len(others) < len(found) else (high - low) / _DEVIATION
    return float(centre), float(width)


def _floats(values: Tensor, *, copy: bool = False) -> Tensor:
    # Tables are float64 until they are scaled: a time stamp has more than 24 bits.
    return values.to(torch.float32 if values.dtype == torch.uint8 else values.dtype, copy=copy)


def _no_zeros(spread: Tensor) -> Tensor:
    return torch.where(spread == 0, 1.0, spread)
