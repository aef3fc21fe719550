"""L-BFGS over vectors that stay with their owners; only scalar products are exchanged.

Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce" (NIPS 2014). The direction of the two-loop recursion (Nocedal
and Wright 2006, algorithm 7.4) lies in the span of the last m steps s, the changes y of the gradient, and the gradient
g. Its coefficients follow from the scalar products of these 2 m + 1 vectors, which are sums over the owners' parts.

Products travel as fixed-point numbers, so all vectors are divided by the newest step's length; earlier pairs stay
divided by their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]

_DOUBLINGS, _CLOSE = 40, 1e-12  # of a line search


def direction(products: Floats) -> Floats:
    """Coefficients of the next direction, float64 (2 m + 1,), in the order of `products`.

    Args:
        products: scalar products (2 m + 1, 2 m + 1) of s_1 .. s_m, y_1 .. y_m and g, the oldest first. Pairs without
            positive curvature (s y <= 0), which rounding can produce, are left out.
    """
    pairs = len(products) // 2
    used = [pair for pair in range(pairs) if products[pair, pairs + pair] > 0]
    found, factors = np.zeros(len(products)), dict[int, float]()
    found[-1] = 1.0
    for pair in reversed(used):
        factors[pair] = products[pair] @ found / products[pair, pairs + pair]
        found[pairs + pair] -= factors[pair]
    if used:
        newest = pairs + used[-1]
        found *= products[used[-1], newest] / products[newest, newest]
    for pair in used:
        found[pair] += factors[pair] - products[pairs + pair] @ found / products[pair, pairs + pair]
    return -found


def minimum_along(slope: Callable[[float], float], guess: float) -> float:
    """The minimiser of a convex function on [0, ∞).

    Args:
        slope: the function's derivative, negative at 0.
        guess: an approximate minimiser, above 0.

    Raises ValueError if the function has no minimum.
    """
    low, high = 0.0, guess
    for _ in range(_DOUBLINGS):
        if not slope(high) < 0:
            return float(brentq(slope, low, high, xtol=_CLOSE * high, rtol=_CLOSE))
        low, high = high, 2 * high
    raise ValueError("a function without a minimum along a line")


class Share:
    """An owner's parts of the vectors, each of the shape of its parameters. A protocol's own state.

    Args:
        pairs: m, at most.

    Attributes:
        at: the owner's parameters.
        unit: factor of the gradient: 1 / length of the newest step.
    """

    def __init__(self, start: Floats, pairs: int, unit: float) -> None:
        self.at, self.unit, self._pairs = start, unit, pairs
        self._steps: list[Floats] = []
        self._changes: list[Floats] = []  # between steps; the newest follows from the two gradients
        self._before: Floats | None = None
        self._gradient: Floats | None = None
        self._direction: Floats | None = None

    def products(self, gradient: Floats) -> Floats:
        """Takes the gradient at `at`, and returns this part of the scalar products for `direction`."""
        self._gradient = gradient
        joined = self._vectors()
        return joined @ joined.T

    def turn(self, coefficients: Floats) -> Floats:
        """This part of the direction with these coefficients, for `step`."""
        self._direction = (coefficients @ self._vectors()).reshape(self.at.shape)
        return self._direction

    def step(self, length: float, unit: float) -> None:
        """Moves `length` times along the direction. `unit` is the gradient's from now on."""
        assert self._direction is not None  # `turn` was called
        self._changes = self._change()[-self._pairs + 1 :] if self._pairs > 1 else []
        step, self._before, self._direction, self.unit = length * self._direction, self._gradient, None, unit
        self._steps = [*self._steps, step * unit][-self._pairs :]
        self.at = self.at + step

    def _change(self) -> list[Floats]:
        if self._before is None or self._gradient is None:
            return self._changes
        return [*self._changes, (self._gradient - self._before) * self.unit]

    def _vectors(self) -> Floats:
        assert self._gradient is not None  # `products` was called
        return np.stack([each.ravel() for each in (*self._steps, *self._change(), self._gradient * self.unit)])

    def state(self) -> dict[str, Any]:
        return {
            "at": torch.from_numpy(self.at.copy()),
            "unit": self.unit,
            "steps": [torch.from_numpy(each.copy()) for each in self._steps],
            "changes": [torch.from_numpy(each.copy()) for each in self._changes],
            "before": None if self._before is None else torch.from_numpy(self._before.copy()),
        }

    def restore(self, saved: Any) -> None:
        self.at, self.unit = saved["at"].numpy().copy(), saved["unit"]
        self._steps, self._changes = ([each.numpy() for each in saved[name]] for name in ("steps", "changes"))
        self._before = None if saved["before"] is None else saved["before"].numpy()
