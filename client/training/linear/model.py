"""A party's part of a linear model, and its columns as small whole numbers, for sums under encryption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.special import erfc
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.client.training.reasons import REASONS, Reason, Reference, lowest
from colonnade.common.data.columns.scale import Columns
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


class LinearModel(Local):
    """A party's logits by its coefficients of the encoded columns, float64 (columns, logits).

    Args:
        mean: of the columns, float64 (columns,).
        digits: which of them are rounded, (columns,).
    """

    model: LinearPart

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__(LinearPart(digits, mean, coefficients))
        self.coefficients, self._mean = coefficients, mean
        self.errors: Floats | None = None  # of coefficients of one logit, given the other parties' part

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:
        """As `Local.of_rows`, on the CPU: in double precision, and the same wherever a party computes."""
        found: Tensor = self(features[rows].cpu())
        return found

    def parts(self, features: Columns, rows: Tensor) -> Floats:
        """What each column of the table adds to the logits of rows, less its mean over the training rows.

        Those are the Shapley values of the columns (client/training/reasons.py). A column of words is a single one.
        Returns float64 (rows, columns, logits).
        """
        each = self.model.centred(features[rows].cpu()).numpy()[:, :, None] * self.coefficients
        found: Floats = np.add.reduceat(each, list(self._columns(features).values()), axis=1)
        return found

    def reasons(
        self, ctx: ClientContext, rows: Tensor, most: int = REASONS, reference: Reference = "mean", score: int = 0
    ) -> list[list[Reason]]:
        """The columns that lower a logit of each row most, against their mean over the training rows or the best there.

        Returns for each row at most `most` of them, with what they lower it by: a number below 0, the lowest first.
        """
        parts = self.parts(ctx.features, rows)[:, :, score]
        if reference == "best":
            parts = parts - self.parts(ctx.features, ctx.schedule.partition.train)[:, :, score].max(axis=0)
        return lowest(parts, list(self._columns(ctx.features)), most)

    def explained(self, ctx: ClientContext) -> dict[str, Any]:
        """As of `Local`: each column's importance, the mean size of what it adds, and its encoded ones."""
        size = np.abs(self.parts(ctx.features, ctx.schedule.partition.train)).mean(axis=(0, 2))
        columns: dict[str, dict[str, Any]] = {
            name: {"column": name, "importance": float(importance), "encoded": []}
            for name, importance in zip(self._columns(ctx.features), size, strict=True)
        }
        of_all = zip(self._names(ctx.features), self.coefficients.tolist(), self._mean.tolist(), strict=True)
        for (name, column), coefficients, mean in of_all:
            columns[column]["encoded"].append({"name": name, "coefficients": coefficients, "mean": mean})
        return {"columns": sorted(columns.values(), key=lambda one: -one["importance"])}

    def _names(self, features: Columns) -> Sequence[tuple[str, str]]:
        return features.names or [(str(number), str(number)) for number in range(len(self._mean))]

    def _columns(self, features: Columns) -> dict[str, int]:
        """The columns of the table, and the place of their first encoded one: those of a column are neighbours."""
        found = dict[str, int]()
        for number, (_, column) in enumerate(self._names(features)):
            found.setdefault(column, number)
        return found

    def record(self) -> dict[str, Any]:
        """Coefficients of the encoded columns, a list of one for each logit, and the means that are taken off first."""
        found = {"coefficients": self.coefficients.tolist(), "means": self._mean.tolist()}
        if self.errors is None:
            return found
        p = erfc(np.abs(self.coefficients[:, 0] / self.errors) / np.sqrt(2))  # Wald's test, two-sided
        known = np.isfinite(self.errors)
        return found | {
            f"{what}_given_other_parties": [float(one) if there else None for one, there in zip(of, known, strict=True)]
            for what, of in {"standard_errors": self.errors, "p_values": p}.items()
        }


class LinearPart(nn.Module):
    """(X - mean) B in double precision, with the columns of digits rounded as in training."""

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__()
        self.digits, self.mean, self.coefficients = (
            nn.Buffer(torch.from_numpy(each)) for each in (digits, mean, coefficients)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> float32 (rows, logits)."""
        return (self.centred(x) @ self.coefficients).float()

    def centred(self, x: Tensor) -> Tensor:
        """X - mean, float64 (rows, columns)."""
        x = x.flatten(1).double()
        return torch.where(self.digits, torch.round(x / STEP) * STEP, x) - self.mean
