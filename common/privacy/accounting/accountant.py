"""Privacy cost of all Gaussian releases of a run.

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

from colonnade.common.config.privacy import Accounting, Adjacency
from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade.common.privacy.accounting.renyi import renyi_epsilon

SENSITIVITY: dict[Adjacency, float] = {"participation": 1.0, "replace": 2.0, "row": 1.0}

_LARGEST_RELEASES, _LARGEST_NOISE = 10**9, 1e6


def epsilon(
    releases: float, noise_multiplier: float, delta: float, adjacency: Adjacency, accounting: Accounting = "exact"
) -> float:
    """The smallest epsilon by the accounting; 0 if nothing was released.

    Args:
        releases: T, matrices clipped to C that were sent; fractional if some had more noise.
        noise_multiplier: sigma, the noise's standard deviation in units of C.
        delta: above 0 and below 1.
        adjacency: definition of neighbours.
        accounting: exact, or Renyi's bound.
    """
    if releases == 0:
        return 0.0
    mu = SENSITIVITY[adjacency] * math.sqrt(releases) / noise_multiplier
    return gaussian_epsilon(1 / mu, delta) if accounting == "exact" else renyi_epsilon(mu, delta)


def affordable(
    budget: float, noise_multiplier: float, delta: float, adjacency: Adjacency, accounting: Accounting = "exact"
) -> int:
    """Number of releases within a budget of epsilon; 0 if not even one."""
    cost: Callable[[int], float] = lambda count: epsilon(count, noise_multiplier, delta, adjacency, accounting)  # noqa: E731
    return _last(lambda count: cost(count) <= budget, _LARGEST_RELEASES)


def find_noise_multiplier(
    budget: float, delta: float, releases: int, adjacency: Adjacency, accounting: Accounting = "exact"
) -> float:
    """The smallest sigma (to three digits) that keeps a number of releases within a budget of epsilon.

    Raises:
        ConfigError: no reasonable sigma exists.
    """
    cost: Callable[[float], float] = lambda sigma: epsilon(releases, sigma, delta, adjacency, accounting)  # noqa: E731
    low, high = 1e-3, _LARGEST_NOISE
    if cost(high) > budget:
        raise ConfigError(
            f"federation.privacy.epsilon = {budget:g}: impossible for {releases} releases at delta = {delta:g}",
            hint="give a larger epsilon, fewer rounds, or fewer evaluations",
        )
    while high / low > 1.0005:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cost(middle) <= budget else (middle, high)
    return float(f"{high * 1.001:.4g}")


def _last(holds: Callable[[int], bool], largest: int) -> int:
    """The largest count with a property that all smaller counts have."""
    low, high = 0, 1
    while high < largest and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
