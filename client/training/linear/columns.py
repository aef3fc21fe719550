"""A party's columns in a regression: z = (X - mean) B."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear.model import Design, Floats, LinearModel, rounded
from colonnade.client.training.local import Local
from colonnade.common.encryption.linear import PartyMatrix
from colonnade.common.errors import DataError
from colonnade.common.protocols.hetero_lr import WEIGHT

_NAMED = 10  # columns in a message


class RegressionColumns(ABC):
    """The columns, and coordinates in which the Hessian of the loss is close to the unit matrix.

    Those are b = L' B with L L' = curvature X' X + penalty, which is local to the party (Boehning and Lindsay 1988 for
    the logistic loss, whose curvature is at most 1/4). They are of the training rows, and the party's state keeps them.

    Args:
        penalty: of the squared coefficients, times 1/2. Without one, columns that are sums of others are left out,
            with a warning that names them to the party.
        curvature: of the loss in a row, about.

    Attributes:
        mean: of the columns, float64 (columns,).
        digits: which of them are rounded, (columns,).
        used: which of them have a coefficient, int64 (used,).

    Raises:
        DataError: there is no column that varies.
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
        """As of `StepColumns`."""

    @abstractmethod
    def _times(self, sums: Floats) -> tuple[Floats, Floats]:
        """X' r, (columns, outputs), and 1' r, (outputs,), from the sums of r over `matrix`."""

    @abstractmethod
    def model(self, coefficients: Floats) -> Local:
        """The part of the model with these, (columns, outputs)."""

    def rounded(self) -> Floats:
        """X over the training rows as in `matrix`, float64 (rows, columns)."""
        return self._encoded()[0]

    @property
    def count(self) -> int:
        """Coefficients an output."""
        return len(self.used)

    def gradient(self, sums: Floats, at: Floats) -> Floats:
        """Gradient in b, float64 (count, outputs).

        Args:
            sums: of the loss's derivatives over `matrix`, (lines, outputs).
            at: b, (count, outputs).
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
    """The encoded columns. Arguments as of `RegressionColumns`."""

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
    """What the training rows decide: means of the columns, which of them are digits, and which are used with L.

    Empty until it is fitted or restored.
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
    """Columns that vary, and are no sums of others before them, from their products."""
    scale = np.sqrt(np.where(products.diagonal() > 0, products.diagonal(), 1.0))
    _, order, rank, _ = dpstrf(products / np.outer(scale, scale), tol=1e-9)
    used: NDArray[np.int64] = np.sort(order[:rank].astype(np.int64) - 1)
    used = used[products.diagonal()[used] > 0]
    if not len(used):
        raise DataError("no column varies over the training rows", shared="none of its columns varies")
    return used
