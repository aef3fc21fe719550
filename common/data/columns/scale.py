"""Scaling of a party's values before they reach a model.

Every scaling is (x - shift) / spread, with one shift and one spread for all values or per column. `auto` bends
long-tailed columns first. Fits use training rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import MeanStd, ScaleConfig
from colonnade.common.data.columns.features import Doubt, Features

_BYTE = 255.0
_TABLE = 2  # axes: rows and columns


_TAIL = 10.0  # deviations: of normal values not one in 10^23 lies so far out
_DISTINCT = 50  # values of a column, at least, for its largest to be a tail rather than a rare code
_TOGETHER = 16  # columns that are bent at a time: of all of them a copy of a large table would be made
_BLOCK = 65_536  # rows that are looked at and scaled at a time
_AT_ONCE = 1 << 27  # bytes of columns that are looked at as a whole
_FIRST = 1000  # rows in which a column of amounts shows that its values vary
_DEVIATION = 1.349  # of normal values: width of the middle half, in standard deviations


@dataclass(frozen=True)
class TableRows:
    """Rows of a table, (n, ...), block by block, so that a table on disk is never in memory as a whole.

    Args:
        index: numbers of the rows, int64 (m,); None for all, in order.
    """

    values: Tensor
    index: Tensor | None = None
    change: Callable[[Tensor], Tensor] = lambda block: block
    size: int = _BLOCK

    def __len__(self) -> int:
        return len(self.values if self.index is None else self.index)

    def __iter__(self) -> Iterator[Tensor]:
        for begin in range(0, len(self), self.size):
            some = slice(begin, begin + self.size)
            yield self.change(self.values[some] if self.index is None else self.values[self.index[some]])

    def columns(self, places: Sequence[int]) -> Iterator[Tensor]:
        """Each of these columns, (m,), a copy."""
        together = max(1, min(_TOGETHER, _AT_ONCE // (8 * max(len(self), 1))))
        for start in range(0, len(places), together):
            some = places[start : start + together]
            made = torch.empty(len(some), len(self), dtype=self.values.dtype)
            for number, block in enumerate(self):
                made[:, number * self.size : number * self.size + len(block)] = block[:, some].T
            yield from made

    def gaps(self) -> list[int]:
        """For every column the number of rows without a value."""
        found = torch.zeros(self.values.shape[1], dtype=torch.int64)
        for block in self:
            # A sum with NaN is NaN: one pass, without a mask. Few sums of numbers are, so those are looked at.
            for place in block.sum(0).isnan().nonzero().flatten().tolist():
                found[place] += block[:, place].isnan().sum()
        return found.tolist()


@dataclass(frozen=True)
class _Moments:
    std: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, rows: TableRows) -> _Moments:
        """Moments of the rows; those of blocks are merged (Chan, Golub and LeVeque 1979), those of one block are
        torch's.
        """
        made: _Moments | None = None
        count = 0
        for block in rows:
            # Sums of another layout may be rounded otherwise.
            std, mean = torch.std_mean(_floats(block.contiguous()), dim=0, correction=0)
            here = cls(std, mean, block.amin(0), block.amax(0))
            made = here if made is None else made._joined(count, here, len(block))
            count += len(block)
        assert made is not None  # there are rows
        return made

    def _joined(self, count: int, other: _Moments, more: int) -> _Moments:
        both, apart = count + more, other.mean - self.mean
        squares = self.std.square() * count + other.std.square() * more + apart.square() * (count * more / both)
        low, high = self.low.minimum(other.low), self.high.maximum(other.high)
        return _Moments((squares / both).sqrt(), self.mean + apart * (more / both), low, high)


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
    def fit(cls, rows: TableRows, found: _Moments) -> Bends | None:
        """Fits to training rows, floats (m, columns), of these moments; None if no column has a long tail."""
        far = (found.high - found.mean).maximum(found.mean - found.low) > _TAIL * found.std
        tailed, middles = list[int](), list[tuple[float, float]]()
        places = far.nonzero().flatten().tolist()
        for place, column in zip(places, rows.columns(places), strict=True):
            if varied(column):
                tailed.append(place)
                middles.append(_middle(column))
        if not tailed:
            return None
        centre, width = (torch.tensor(each, dtype=rows.values.dtype) for each in zip(*middles, strict=True))
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
        return cls.of_rows(scale, TableRows(values, size=max(len(values), 1)))

    @classmethod
    def of_rows(cls, scale: ScaleConfig, rows: TableRows) -> Scaler:
        """`fit` on training rows alone, block by block."""
        values = rows.values
        unit = _BYTE if values.dtype == torch.uint8 else 1.0
        match scale:
            case MeanStd(mean=mean, std=std):
                return cls(torch.tensor(mean * unit), torch.tensor(std * unit))
            case "auto" if values.ndim == _TABLE and values.dtype != torch.uint8 and len(rows):
                found = _Moments.of(rows)
                bends = Bends.fit(rows, found)
                bent = (
                    rows if bends is None else replace(rows, change=lambda some: bends.apply(rows.change(some).clone()))
                )
                return _standard(found if bends is None else _Moments.of(bent), bends)
            case "standard" | "auto":
                return _standard(_Moments.of(rows))
            case "unit" if unit == 1.0:
                return cls(torch.tensor(0.0), _no_zeros(torch.stack([some.abs().amax(dim=0) for some in rows]).amax(0)))
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
        table: the same rows before encoding, on the CPU, for `typed` protocols.
        names: of a row's values, each with its table column; none if unknown.

    Attributes:
        doubts: warnings about the values, given the training rows.
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
        """Raises IndexError for a row, int64 (m,), out of range; negative numbers are out of range."""
        found = self.values.index_select(0, rows.to(self.values.device))  # a fifth of the time of values[rows]
        return self._scaler.apply(found) if self._lazy else found

    def to(self, device: torch.device) -> Columns:
        if self.table is None:
            self.values = self.values.to(device)
            self._scaler = self._scaler.to(device)
        return self


def _standard(found: _Moments, bends: Bends | None = None) -> Scaler:
    return Scaler(found.mean, _no_zeros(found.std), bends)


def varied(column: Tensor) -> bool:
    """True if a column (m,) has 50 distinct values, so that a large one may be a tail rather than a rare word or
    code.
    """
    # Sorting all of it to count them would take far longer.
    if len(torch.unique(column[:_FIRST])) >= _DISTINCT:
        return True
    for _ in range(_DISTINCT - 1):
        column = column[column != column[0]]
        if not len(column):
            return False
    return True


def _middle(column: Tensor) -> tuple[float, float]:
    """The median, and the deviation of normal values with the same middle half; it changes the column.

    If more than half of the values are one number, mostly 0, the width comes from the others.
    """
    found = column.cpu().numpy()
    low, centre, high = np.quantile(found, (0.25, 0.5, 0.75), overwrite_input=True)
    np.abs(np.subtract(found, centre, out=found), out=found)
    apart = found[found > 0]
    width = np.median(apart, overwrite_input=True) if 2 * len(apart) < len(found) else (high - low) / _DEVIATION
    return float(centre), float(width)


def _floats(values: Tensor, *, copy: bool = False) -> Tensor:
    # Tables are float64 until they are scaled: a time stamp has more than 24 bits.
    return values.to(torch.float32 if values.dtype == torch.uint8 else values.dtype, copy=copy)


def _no_zeros(spread: Tensor) -> Tensor:
    return torch.where(spread == 0, 1.0, spread)
