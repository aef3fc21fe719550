"""Exact calibration of one Gaussian release: noise for a guarantee, and guarantee for a noise.

Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8: noise of sigma times the
sensitivity is (epsilon, delta)-DP if and only if

    Phi(1 / 2 sigma - epsilon sigma) - e^epsilon Phi(-1 / 2 sigma - epsilon sigma) <= delta.

The classical bound, sigma >= c / epsilon with c^2 > 2 ln(1.25 / delta) (Dwork and Roth 2014, Theorem A.1), is larger,
and proven for epsilon < 1 only; Lemma 3.3 of VFL-AFE prints its fraction upside down.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_SMALLEST, _LARGEST = 1e-6, 1e9
_FAR = -30.0  # beyond this Phi is computed by its series, far before it underflows


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """The smallest delta of one release with noise multiplier sigma, for an epsilon of at least 0."""
    upper = _log_phi(0.5 / sigma - epsilon * sigma)
    lower = epsilon + _log_phi(-0.5 / sigma - epsilon * sigma)
    return max(math.exp(upper) * -math.expm1(min(lower - upper, 0.0)), 0.0)


def gaussian_epsilon(sigma: float, delta: float) -> float:
    """The smallest epsilon of one release with noise multiplier sigma, for a delta between 0 and 1."""
    if gaussian_delta(sigma, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(sigma, high) > delta:
        high *= 2
    return _bisect(0.0, high, lambda epsilon: gaussian_delta(sigma, epsilon) <= delta)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The smallest noise multiplier of one (epsilon, delta)-DP release."""
    return _bisect(_SMALLEST, _LARGEST, lambda sigma: gaussian_delta(sigma, epsilon) <= delta)


def _log_phi(value: float) -> float:
    """log Phi. Below -30 by the asymptotic series, whose fifth term is below 10^-11 there."""
    if value > _FAR:
        return math.log(math.erfc(-value / math.sqrt(2)) / 2)
    z = 1 / value**2
    tail = 1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z)))
    return -(value**2) / 2 - math.log(-value * math.sqrt(2 * math.pi)) + math.log(tail)


def _bisect(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The smallest number with a property that all larger numbers have, to 12 digits."""
    while high - low > 1e-12 * high:
        middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
