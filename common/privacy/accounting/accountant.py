"""Privacy cost of what a mechanism releases, from its event.

T releases with noise multiplier sigma compose to one Gaussian release with sigma / sqrt(T), also adaptively (Dong, Roth
and Su 2022, "Gaussian differential privacy", Corollary 3.3). Releases with other noise, and those of other parties, add
up in T / sigma^2. `exact` is the smallest epsilon of that one release (common/privacy/accounting/calibration.py),
`renyi` the bound of Xie et al. 2024, Theorem 2 (common/privacy/accounting/renyi.py).

Sensitivity is in units of the clipping threshold C, and depends on the adjacency. `participation`: the same data with
one party absent, which then sends zeros; s = 1, as in the paper. `replace`: the party has other data; two clipped
matrices may differ by 2C, so s = 2. `row`: one row has other features, which change only its own embeddings; sigma is
in units of the diameter of their region, so s = 1, and T counts the releases of one row.

Batches and participation are known to the server, so there is no amplification by subsampling, and the exact value is
always known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from colonnade.common.config.privacy import Accounting, Adjacency
from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade.common.privacy.accounting.renyi import renyi_epsilon

if TYPE_CHECKING:
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

SENSITIVITY: dict[Adjacency, float] = {"participation": 1.0, "replace": 2.0, "row": 1.0}

_MOST_RELEASES, _LARGEST_NOISE = 10**9, 1e6


@dataclass(frozen=True)
class Event:
    """What was released of one row, or of one party's data, in terms that add up. A mechanism states its event.

    Args:
        releases: T, Gaussian; fractional if some had more noise.
        noise_multiplier: sigma of these.
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
    """Epsilon without the pure one."""
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
    """Number of releases within a budget of epsilon, beside the rest of an event; 0 if not even one."""
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
