"""A party's part of a linear model, and its columns in a regression: z = (X - mean) B.

A regression's columns are small whole numbers, for encrypted sums of vectors that the server chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.sparse import csc_array
from scipy.special import erfc
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import REASONS, Local, Reason, Reference, lowest
from colonnade.common.data.columns.scale import Columns
from colonnade.common.encryption.linear import PartyMatrix
from colonnade.common.errors import DataError, InputError
from colonnade.common.protocols.hetero_lr import WEIGHT

Floats = NDArray[np.float64]

STEP = 2.0**-12
"""Columns of more values than FEW are rounded to multiples of it. In columns that are scaled to a deviation of 1 that
moves a coefficient by less than one part in 10^3."""
FEW = 4  # values of a column that has a line for each of them but one
_BASE_BITS = 4
_LARGEST = 2.0**31  # steps


@dataclass(frozen=True)
class _Column:
    """A column's lines of the matrix and their `weights`, float64 (lines,).

    Every row also counts for `base`. `levels` are the values that lines stand for; None for digits.
    """

    first: int
    weights: Floats
    base: float
    levels: Floats | None


class Design:
    """Matrix of a party's columns, float64 (rows,) each, finite.

    Line 0 counts all rows. A column of few values has a line per value but the most frequent, another a line per digit
    to base 16. Raises InputError if a number is too large for its column's step.
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
    """Columns rounded as in the matrix, for its rows or others, float64 (rows, columns). Errors as for `Design`."""
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

    `mean` is each column's, float64 (columns,), `digits` marks rounded columns.
    """

    model: LinearPart

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__(LinearPart(digits, mean, coefficients))
        self.coefficients, self._mean, self._digits = coefficients, mean, digits
        self.errors: Floats | None = None  # of coefficients of one logit, given the other parties' part

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:
        """As `Local.of_rows`, on the CPU in double precision: the same on every machine."""
        found: Tensor = self(features[rows].cpu())
        return found

    def parts(self, features: Columns, rows: Tensor) -> Floats:
        """Contribution of each table column to the rows' logits, less its mean over the training rows.

        These are the columns' Shapley values (client/training/local.py); a column of words is one column. Returns
        float64 (rows, columns, logits).
        """
        each = self.model.centred(features[rows].cpu()).numpy()[:, :, None] * self.coefficients
        found: Floats = np.add.reduceat(each, list(self._columns(features).values()), axis=1)
        return found

    def reasons(
        self, ctx: ClientContext, rows: Tensor, most: int = REASONS, reference: Reference = "mean", score: int = 0
    ) -> list[list[Reason]]:
        """The columns that lower a row's logit most, compared with their mean over the training rows or their best
        there.

        Returns for each row at most `most` columns and their contributions below 0, lowest first.
        """
        parts = self.parts(ctx.features, rows)[:, :, score]
        if reference == "best":
            parts = parts - self.parts(ctx.features, ctx.schedule.partition.train)[:, :, score].max(axis=0)
        return lowest(parts, list(self._columns(ctx.features)), most)

    def explained(self, ctx: ClientContext) -> dict[str, Any]:
        """As `Local.explained`: each column's importance (mean absolute contribution), and its encoded columns."""
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
        """The table's columns, and the place of the first encoded column of each; those of a column are adjacent."""
        found = dict[str, int]()
        for number, (_, column) in enumerate(self._names(features)):
            found.setdefault(column, number)
        return found

    def record(self) -> dict[str, Any]:
        """Coefficients of the encoded columns, a list per logit, the means that are subtracted first, and before that
        the number to whose nearest multiple a column is rounded, 0 where it is not.
        """
        rounded = np.where(self._digits, STEP, 0.0)
        parts = {"coefficients": self.coefficients, "means": self._mean, "multiples": rounded}
        found: dict[str, Any] = {name: part.tolist() for name, part in parts.items()}
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


_NAMED = 10  # columns in a message


class RegressionColumns(ABC):
    """The columns, in coordinates in which the Hessian of the loss is close to the identity.

    These are b = L' B with L L' = curvature X' X + penalty, computed by the party alone from its training rows
    (Boehning and Lindsay 1988 for the logistic loss, whose curvature is at most 1/4); the party's state keeps them.

    Args:
        penalty: factor of the squared coefficients, times 1/2. Without one, linearly dependent columns are left out,
            with a warning that names them to the party.
        curvature: approximate curvature of the loss in a row.

    Attributes:
        mean: column means, float64 (columns,).
        digits: which columns are rounded, (columns,).
        used: columns with a coefficient, int64 (used,).

    Raises DataError if no column varies.
    """

    weight = 1

    def __init__(self, ctx: ClientContext, penalty: float, curvature: float) -> None:
        self._ctx, self.penalty = ctx, penalty
        kept = ctx.state.keep("columns", _Fitted)
        if not len(kept.mean):  # not restored: a prediction may have other rows than training
            kept.fit(*self._encoded(), penalty, curvature)
            self._name_left_out(kept)
        self.mean, self.digits, self.used, self._factor = kept.mean, kept.digits, kept.used, kept.factor

    def _name_left_out(self, kept: _Fitted) -> None:
        if len(left := np.setdiff1d(np.arange(len(kept.mean)), kept.used)):
            named = ", ".join(self._name(number) for number in left[:_NAMED].tolist())
            more = " .." if len(left) > _NAMED else ""
            self._ctx.warn(f"columns {named}{more} are sums of others, and have no coefficient: set `c` to keep them")

    def _name(self, number: int) -> str:
        return str(number)

    @abstractmethod
    def _encoded(self) -> tuple[Floats, NDArray[np.bool_]]:
        """X over the training rows, float64 (rows, columns), and which columns are rounded."""

    @abstractmethod
    def matrix(self) -> PartyMatrix:
        """As `StepColumns.matrix`."""

    @abstractmethod
    def _times(self, sums: Floats) -> tuple[Floats, Floats]:
        """X' r, (columns, outputs), and 1' r, (outputs,), from the sums of r over `matrix`."""

    @abstractmethod
    def model(self, coefficients: Floats) -> Local:
        """The part of the model with these coefficients, (columns, outputs)."""

    def rounded(self) -> Floats:
        """X over the training rows as in `matrix`, float64 (rows, columns)."""
        return self._encoded()[0]

    @property
    def count(self) -> int:
        """Coefficients per output."""
        return len(self.used)

    def gradient(self, sums: Floats, at: Floats) -> Floats:
        """Gradient in b, float64 (count, outputs), at b from the sums of the loss's derivatives over `matrix`, (lines,
        outputs).
        """
        times, total = self._times(sums)
        slopes = times - np.outer(self.mean, total)
        return self._solve((slopes + self.penalty * self.coefficients(at))[self.used], transposed=False)

    def coefficients(self, at: Floats) -> Floats:
        """B of all columns from b, float64 (columns, outputs); zeros for those that were left out."""
        found = np.zeros((len(self.mean), at.shape[1]))
        found[self.used] = self._solve(at, transposed=True)
        return found

    def _solve(self, right: Floats, *, transposed: bool) -> Floats:
        found: Floats = solve_triangular(self._factor, right, trans="T" if transposed else "N", lower=True)
        return found


class LinearColumns(RegressionColumns):
    """The encoded columns. Arguments as for `RegressionColumns`."""

    weight = WEIGHT
    _design: Design

    def matrix(self) -> Design:
        own = _numbers(self._ctx, self._ctx.schedule.partition.train)
        self._design = Design(own.T, len(own))
        return self._design

    def model(self, coefficients: Floats) -> LinearModel:
        return LinearModel(self.digits, self.mean, coefficients)

    def _name(self, number: int) -> str:
        names = self._ctx.features.names
        return names[number][0] if names else str(number)

    def _encoded(self) -> tuple[Floats, NDArray[np.bool_]]:
        own = _numbers(self._ctx, self._ctx.schedule.partition.train)
        digits = Design(own.T, len(own)).digits
        return rounded(own, digits), digits

    def _times(self, sums: Floats) -> tuple[Floats, Floats]:
        return self._design.times(sums), sums[0]


def _numbers(ctx: ClientContext, rows: Tensor) -> Floats:
    return ctx.features[rows].flatten(1).double().cpu().numpy()


class _Fitted:
    """What is fitted to the training rows: column means, digits, used columns, and L. Empty until fitted or
    restored.
    """

    def __init__(self) -> None:
        self.digits, self.used = np.empty(0, np.bool_), np.empty(0, np.int64)
        self.mean: Floats = np.empty(0)
        self.factor: Floats = np.empty((0, 0))

    def fit(self, x: Floats, digits: NDArray[np.bool_], penalty: float, curvature: float) -> None:
        self.digits, self.mean = digits, x.mean(axis=0)
        products = curvature * ((x - self.mean).T @ (x - self.mean))
        self.used = np.arange(len(products)) if penalty else independent(products)
        square = products[np.ix_(self.used, self.used)]
        factor = cholesky(square + penalty * np.eye(len(self.used)), lower=True)
        self.factor = np.ascontiguousarray(factor)  # as it is restored: another order rounds differently

    def state(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(getattr(self, name)) for name in _FITTED}

    def restore(self, saved: dict[str, Tensor]) -> None:
        for name in _FITTED:
            setattr(self, name, saved[name].numpy().copy())


_FITTED = ("digits", "mean", "used", "factor")


def independent(products: Floats) -> NDArray[np.int64]:
    """Columns that vary and are not linear combinations of earlier ones, from their products."""
    scale = np.sqrt(np.where(products.diagonal() > 0, products.diagonal(), 1.0))
    _, order, rank, _ = dpstrf(products / np.outer(scale, scale), tol=1e-9)
    used: NDArray[np.int64] = np.sort(order[:rank].astype(np.int64) - 1)
    used = used[products.diagonal()[used] > 0]
    if not len(used):
        raise DataError("no column varies over the training rows", shared="none of its columns varies")
    return used
