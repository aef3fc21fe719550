"""A party's columns as small whole numbers, for sums under encryption of vectors that the server chooses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from colonnade.common.errors import InputError
from colonnade.common.protocols.hetero_lr import WEIGHT

Floats = NDArray[np.float64]

STEP = 2.0**-12
"""Columns of more values than FEW are rounded to multiples of it. In columns that are scaled to a deviation of 1 that
moves a coefficient by less than one part in 10^3."""
FEW = 4
"""Values of a column that has a line for each of them but one."""
_BASE_BITS = 4
_LARGEST = 2.0**31  # steps


@dataclass(frozen=True)
class _Column:
    """A column's lines of the matrix, and what each counts for.

    Args:
        weights: of its lines, float64 (lines,).
        base: what every row counts for besides.
        levels: the values that lines stand for; None for digits.
    """

    first: int
    weights: Floats
    base: float
    levels: Floats | None


class Design:
    """The matrix of a party's columns: line 0 counts all rows; a column of few values has a line that marks each value
    but the most frequent, another one a line for each digit to base 16.

    Args:
        columns: of the training rows, float64 (rows,) each, finite.

    Raises:
        InputError: a number is too large for its column's step.
    """

    def __init__(self, columns: Iterable[Floats], rows: int) -> None:
        lines: list[NDArray[np.int8]] = [np.ones(rows, np.int8)]
        self._columns = []
        for number, values in enumerate(columns):
            levels, counts = np.unique(values, return_counts=True)
            if len(levels) <= FEW:
                base = levels[counts.argmax()]
                levels = levels[levels != base]
                of_column = [(values == level).astype(np.int8) for level in levels]
                found = _Column(len(lines), levels - base, float(base), levels)
            else:
                of_column = _digits(_whole(values, number))
                places: Floats = STEP * np.exp2(_BASE_BITS * np.arange(len(of_column), dtype=np.float64))
                found = _Column(len(lines), places, 0.0, None)
            self._columns.append(found)
            lines += of_column
        self._lines = np.stack(lines)

    @property
    def shape(self) -> tuple[int, int]:
        return self._lines.shape[0], self._lines.shape[1]

    def rows(self, first: int, last: int) -> csc_array:
        """As `PartyMatrix.rows`."""
        return csc_array(self._lines[:, first:last])

    def times(self, sums: Floats) -> Floats:
        """X' r, float64 (columns, v), from the sums of v vectors r over the lines, (lines, v)."""
        return np.stack([
            column.base * sums[0] + column.weights @ sums[column.first : column.first + len(column.weights)]
            for column in self._columns
        ])  # fmt: skip

    @property
    def digits(self) -> NDArray[np.bool_]:
        """True for columns of digits, (columns,)."""
        return np.array([column.levels is None for column in self._columns])


def rounded(columns: Floats, digits: NDArray[np.bool_]) -> Floats:
    """Columns as the matrix has them: of its rows or others, float64 (rows, columns). Errors as of `Design`."""
    found = columns.copy()
    for number in np.flatnonzero(digits).tolist():
        found[:, number] = _whole(columns[:, number], number) * STEP
    return found


def _whole(values: Floats, number: int) -> NDArray[np.int64]:
    steps = np.rint(values / STEP)
    if not np.abs(steps).max(initial=0) < _LARGEST:
        raise InputError(f"column {number} reaches {np.abs(values).max():g}", hint="scale it: scale: standard")
    return steps.astype(np.int64)


def _digits(whole: NDArray[np.int64]) -> list[NDArray[np.int8]]:
    """Digits to base 16 from -8 to 7, the lowest first."""
    found = list[NDArray[np.int8]]()
    while not found or whole.any():
        digit = ((whole + WEIGHT) & (2 * WEIGHT - 1)) - WEIGHT
        found.append(digit.astype(np.int8))
        whole = (whole - digit) >> _BASE_BITS
    return found
