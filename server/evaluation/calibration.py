"""Recalibration of the positive class's probability on validation rows: Platt's sigmoid, or an isotonic curve.

Both map the margin of a row, the log-odds of the positive class, to a probability, and never change the order of rows;
the isotonic curve can make rows equal that were not.

Sources: Platt, "Probabilistic outputs for support vector machines", 1999, with the targets of its section 2.2 and the
Newton method of Lin, Lin and Weng, "A note on Platt's probabilistic outputs", 2007; Zadrozny and Elkan, "Transforming
classifier scores into accurate multiclass probability estimates", 2002.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.common.config.decision import Calibrate

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_STEPS = 100
_EXACT = 1e-10  # of a gradient, per row
_RIDGE = 1e-12  # keeps the Hessian invertible where all margins are equal


class Calibration(Protocol):
    """A map from margins to probabilities that never decreases."""

    def of(self, margins: Floats) -> Floats:
        """Probabilities of the positive class, float64 (rows,), of margins float64 (rows,)."""
        ...

    def record(self) -> dict[str, Any]:
        """JSON values, for `read`."""
        ...


@dataclass(frozen=True)
class Platt:
    """1 / (1 + exp(-(slope margin + shift))), slope at least 0."""

    slope: float
    shift: float

    def of(self, margins: Floats) -> Floats:
        """Probabilities, as `Calibration`."""
        return sigmoid(self.slope * margins + self.shift)

    def record(self) -> dict[str, Any]:
        """JSON values."""
        return {"name": "platt", "slope": self.slope, "shift": self.shift}


@dataclass(frozen=True)
class Isotonic:
    """Straight lines between points; constant before the first and after the last.

    Args:
        margins: of the points, ascending, at least one.
        probabilities: of the points, never decreasing.
    """

    margins: tuple[float, ...]
    probabilities: tuple[float, ...]

    def of(self, margins: Floats) -> Floats:
        """Probabilities, as `Calibration`."""
        return np.interp(margins, self.margins, self.probabilities)

    def record(self) -> dict[str, Any]:
        """JSON values."""
        return {"name": "isotonic", "margins": list(self.margins), "probabilities": list(self.probabilities)}


def fit(name: Calibrate, margins: Floats, positive: Bools) -> Calibration | None:
    """The calibration of these rows.

    Args:
        name: platt, isotonic, or none.
        margins: log-odds of the positive class, finite, float64 (rows,).
        positive: True for rows of it, bool (rows,); some are and some are not.
    """
    if name == "none":
        return None
    return _platt(margins, positive) if name == "platt" else _isotonic(margins, positive)


def read(record: Mapping[str, Any] | None) -> Calibration | None:
    """The calibration that `record` describes."""
    if record is None:
        return None
    if record["name"] == "platt":
        return Platt(record["slope"], record["shift"])
    return Isotonic(tuple(record["margins"]), tuple(record["probabilities"]))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), exact at both ends."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _platt(margins: Floats, positive: Bools) -> Platt:
    low, high = _surest(positive)
    targets = np.where(positive, high, low)
    scale = float(np.abs(margins).max()) or 1.0  # the fit is of margins up to 1, so that both steps are of one size
    slope, shift = _newton(margins / scale, targets)
    if slope < 0:  # these rows rank worse than chance: the best map that keeps their order says the same of all
        slope, shift = 0.0, float(np.log(targets.mean() / (1.0 - targets.mean())))
    return Platt(slope / scale, shift)


def _surest(positive: Bools) -> tuple[float, float]:
    """Platt's targets: the lowest and the highest probability that so many rows of each class allow."""
    ones = int(positive.sum())
    return 1.0 / (len(positive) - ones + 2.0), (ones + 1.0) / (ones + 2.0)


def _newton(margins: Floats, targets: Floats) -> tuple[float, float]:
    """Slope and shift of the smallest cross-entropy to the targets, which lie between 0 and 1."""
    inputs = np.stack([margins, np.ones_like(margins)])
    found = np.array([0.0, float(np.log(targets.mean() / (1.0 - targets.mean())))])
    loss = _cross_entropy(found @ inputs, targets)
    for _ in range(_STEPS):
        p = sigmoid(found @ inputs)
        gradient = inputs @ (p - targets)
        if np.abs(gradient).max() <= _EXACT * len(targets):
            break
        step = np.linalg.solve((inputs * (p * (1.0 - p))) @ inputs.T + _RIDGE * len(targets) * np.eye(2), gradient)
        length = 1.0
        while (lower := _cross_entropy((found - length * step) @ inputs, targets)) > loss and length > _EXACT:
            length /= 2
        if lower > loss:
            break
        found, loss = found - length * step, lower
    return float(found[0]), float(found[1])


def _cross_entropy(x: Floats, targets: Floats) -> float:
    return float((np.logaddexp(0.0, x) - targets * x).sum())


def _isotonic(margins: Floats, positive: Bools) -> Isotonic:
    from scipy.optimize import isotonic_regression  # noqa: PLC0415  # takes a quarter of a second

    at, place, rows = np.unique(margins, return_inverse=True, return_counts=True)
    share = np.bincount(place, weights=positive) / rows  # of rows with one and the same margin
    low, high = _surest(
        positive
    )  # the outermost blocks are often of one class: they do not show that others never occur
    fitted = isotonic_regression(share, weights=rows).x.clip(low, high)
    inner = np.zeros(len(at), dtype=bool)  # points between two others of the same block say nothing
    inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return Isotonic(tuple(at[~inner].tolist()), tuple(fitted[~inner].tolist()))
