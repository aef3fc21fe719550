"""Privacy cost of what a mechanism releases, from its event.

T releases with noise multiplier sigma compose to one Gaussian release with sigma / sqrt(T), also adaptively (Dong, Roth
and Su 2022, "Gaussian differential privacy", Corollary 3.3). Releases with other noise, and those of other parties, add
up in T / sigma^2. `exact` is the smallest epsilon of that one release, `renyi` the bound of Xie et al. 2024, Theorem 2.

Sensitivity is in units of the clipping threshold C, and depends on the adjacency. `participation`: the same data with
one party absent, which then sends zeros; s = 1, as in the paper. `replace`: the party has other data; two clipped
matrices may differ by 2C, so s = 2. `row`: one row has other features, which change only its own embeddings; sigma is
in units of the diameter of their region, so s = 1, and T counts the releases of one row.

The server knows batches and participation, so there is no amplification by subsampling, and the exact value is always
known.

One release is calibrated exactly. Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018),
Theorem 8: noise of sigma times the sensitivity is (epsilon, delta)-DP if and only if

    Phi(1 / 2 sigma - epsilon sigma) - e^epsilon Phi(-1 / 2 sigma - epsilon sigma) <= delta.

The classical bound, sigma >= c / epsilon with c^2 > 2 ln(1.25 / delta) (Dwork and Roth 2014, Theorem A.1), is larger,
and proven for epsilon < 1 only; Lemma 3.3 of VFL-AFE prints its fraction upside down.

Renyi's bound (Xie et al. 2024, Theorem 2) serves comparison with papers; it exceeds the exact value by some 5 to 15 %.
Releases with total noise 1 / mu in units of their sensitivity satisfy (epsilon, delta)-DP with, for any alpha > 1,

    epsilon = alpha mu^2 / 2 + log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from colonnade.common.config.privacy import Accounting, Adjacency
from colonnade.common.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

# alpha, close enough together for three digits, and up to 10^5 for an epsilon far below 1.
_ORDERS = tuple(1 + 0.01 * 1.05**step for step in range(331))


def renyi_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon over all orders alpha.

    Args:
        mu: the sensitivity in units of the noise's standard deviation, of all releases together.
        delta: above 0 and below 1.
    """
    half = mu**2 / 2
    return max(min(alpha * half + rest for alpha, rest in zip(_ORDERS, _conversion(delta), strict=True)), 0.0)


@functools.lru_cache(maxsize=8)
def _conversion(delta: float) -> tuple[float, ...]:
    """Term of every order alpha for delta; cached, since delta is fixed in a run and every release needs it."""
    return tuple(math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in _ORDERS)


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


SENSITIVITY: dict[Adjacency, float] = {"participation": 1.0, "replace": 2.0, "row": 1.0}

_MOST_RELEASES, _LARGEST_NOISE = 10**9, 1e6


@dataclass(frozen=True)
class Event:
    """Releases of one row, or of one party's data, in additive terms. Every mechanism returns its event.

    Args:
        releases: T, Gaussian; fractional if some had more noise.
        noise_multiplier: sigma of the Gaussian releases.
        sensitivity: in the units of sigma.
        steps: DP-SGD over secretly drawn rows (common/privacy/accounting/sampled.py); None without.
        pure: epsilon of everything else, at delta 0.
    """

    releases: float = 0.0
    noise_multiplier: float = 1.0
    sensitivity: float = 1.0
    steps: SampledGaussian | None = None
    pure: float = 0.0

    def epsilon(self, delta: float, accounting: Accounting = "exact") -> float:
        """The smallest epsilon at a delta; 0 if nothing was released."""
        return _epsilon(self, delta, accounting) + self.pure

    def within(self, budget: float, delta: float, accounting: Accounting = "exact") -> bool:
        """True if epsilon is at most a budget."""
        if self.steps is None:
            return self.epsilon(delta, accounting) <= budget
        sigma = self.noise_multiplier / self.sensitivity
        return self.steps.joint_delta(self.releases, sigma, budget - self.pure) <= delta


@lru_cache(maxsize=1024)  # every release of a run asks, and so do those of the members beside it
def _epsilon(event: Event, delta: float, accounting: Accounting) -> float:
    """Epsilon without the pure part."""
    if event.steps is not None and event.releases:
        return event.steps.joint_epsilon(event.releases, event.noise_multiplier / event.sensitivity, delta)
    if event.steps is not None:
        return event.steps.epsilon(delta)
    if event.releases == 0:
        return 0.0
    mu = event.sensitivity * math.sqrt(event.releases) / event.noise_multiplier
    return gaussian_epsilon(1 / mu, delta) if accounting == "exact" else renyi_epsilon(mu, delta)


@lru_cache(maxsize=64)
def most_releases(event: Event, budget: float, delta: float, accounting: Accounting = "exact") -> int:
    """Number of releases within a budget of epsilon, in addition to the rest of an event; 0 if there is none."""
    holds: Callable[[int], bool] = lambda count: replace(event, releases=count).within(budget, delta, accounting)  # noqa: E731
    low, high = 0, 1
    while high < _MOST_RELEASES and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@lru_cache(maxsize=64)
def least_noise(event: Event, budget: float, delta: float, accounting: Accounting = "exact") -> float | None:
    """The smallest sigma (to three digits) that keeps an event within a budget of epsilon; None if there is none."""
    holds: Callable[[float], bool] = lambda sigma: replace(event, noise_multiplier=sigma).within(  # noqa: E731
        budget, delta, accounting
    )
    low, high = 1e-3, _LARGEST_NOISE
    if not holds(high):
        return None
    while high / low > 1.0005:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(f"{high * 1.001:.4g}")


def epsilon(
    releases: float, noise_multiplier: float, delta: float, adjacency: Adjacency, accounting: Accounting = "exact"
) -> float:
    """The smallest epsilon of Gaussian releases alone; 0 if nothing was released.

    Args:
        releases: T, matrices clipped to C that were sent; fractional if some had more noise.
        noise_multiplier: sigma, the noise's standard deviation in units of C.
        delta: above 0 and below 1.
        accounting: exact, or Renyi's bound.
    """
    return Event(releases, noise_multiplier, SENSITIVITY[adjacency]).epsilon(delta, accounting)


def stated_releases(made: float, planned: float, limit: float | None) -> float:
    """Releases that a run's epsilon has to count, at whatever release it ended.

    An epsilon holds for a number of releases that is fixed before the first, or for a bound that ends the run. The
    server sees releases and may end the run by them, so those that were planned and not made count as well.

    Args:
        made: releases so far; 0 counts none.
        planned: most releases of training. More are made by predictions, and by rounds that a rollback repeats.
        limit: releases within the budget; None without, where more than planned are a running count.
    """
    if not made or made <= planned:
        return planned if made else 0
    return max(made, limit or 0)


def find_noise_multiplier(
    budget: float, delta: float, releases: int, adjacency: Adjacency, accounting: Accounting = "exact"
) -> float:
    """The smallest sigma (to three digits) that keeps Gaussian releases within a budget. Raises ConfigError."""
    found = least_noise(Event(releases, sensitivity=SENSITIVITY[adjacency]), budget, delta, accounting)
    if found is None:
        raise ConfigError(
            f"federation.privacy.epsilon = {budget:g}: impossible for {releases} releases at delta = {delta:g}",
            hint="give a larger epsilon, fewer rounds, or fewer evaluations",
        )
    return found
