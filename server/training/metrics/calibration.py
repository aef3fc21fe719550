"""Recalibration of the positive class's probability on validation rows: Platt's sigmoid, or an isotonic curve.

Both map a row's margin, the log-odds of the positive class, to a probability and keep the order of rows; the isotonic
curve can create ties.

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

from colonnade.common.config.members import Calibrate

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_STEPS = 100
_EXACT = 1e-10  # gradient per row at which Newton stops
_RIDGE = 1e-12  # keeps the Hessian invertible where all margins are equal


class Calibration(Protocol):
    """A non-decreasing map from margins to probabilities."""

    def of(self, margins: Floats) -> Floats:
        """Margins float64 (rows,) -> probabilities of the positive class, float64 (rows,)."""
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
        return sigmoid(self.slope * margins + self.shift)

    def record(self) -> dict[str, Any]:
        return {"name": "platt", "slope": self.slope, "shift": self.shift}


@dataclass(frozen=True)
class Isotonic:
    """Linear interpolation between points, constant outside. Margins ascend; probabilities do not decrease."""

    margins: tuple[float, ...]
    probabilities: tuple[float, ...]

    def of(self, margins: Floats) -> Floats:
        return np.interp(margins, self.margins, self.probabilities)

    def record(self) -> dict[str, Any]:
        return {"name": "isotonic", "margins": list(self.margins), "probabilities": list(self.probabilities)}


def fit(name: Calibrate, margins: Floats, positive: Bools) -> Calibration | None:
    """Fits a calibration; None for "none".

    `margins` are log-odds of the positive class, finite, float64 (rows,); `positive` has both values.
    """
    if name == "none":
        return None
    return _platt(margins, positive) if name == "platt" else _isotonic(margins, positive)


def read(record: Mapping[str, Any] | None) -> Calibration | None:
    if record is None:
        return None
    if record["name"] == "platt":
        return Platt(record["slope"], record["shift"])
    return Isotonic(tuple(record["margins"]), tuple(record["probabilities"]))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _platt(margins: Floats, positive: Bools) -> Platt:
    low, high = _surest(positive)
    targets = np.where(positive, high, low)
    scale = float(np.abs(margins).max()) or 1.0  # scaled to at most 1, so that slope and shift are of similar size
    slope, shift = _newton(margins / scale, targets)
    if slope < 0:  # ranks worse than chance: the best non-decreasing map is constant
        slope, shift = 0.0, float(np.log(targets.mean() / (1.0 - targets.mean())))
    return Platt(slope / scale, shift)


def _surest(positive: Bools) -> tuple[float, float]:
    """Platt's targets: the lowest and highest probability that the number of rows of each class supports."""
    ones = int(positive.sum())
    return 1.0 / (len(positive) - ones + 2.0), (ones + 1.0) / (ones + 2.0)


def _newton(margins: Floats, targets: Floats) -> tuple[float, float]:
    """Slope and shift that minimise the cross-entropy to the targets, which are strictly between 0 and 1."""
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
    share = np.bincount(place, weights=positive) / rows  # of rows with the same margin
    low, high = _surest(positive)  # the outermost blocks often have one class, which does not prove probability 0 or 1
    fitted = isotonic_regression(share, weights=rows).x.clip(low, high)
    inner = np.zeros(len(at), dtype=bool)  # points inside a block of equal values are redundant
    inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return Isotonic(tuple(at[~inner].tolist()), tuple(fitted[~inner].tolist()))
