"""What Gaussian releases cost: Renyi differential privacy, as Xie et al. 2024, Theorem 2, composes it.

T releases with noise multiplier sigma satisfy (epsilon, delta)-DP with, for any alpha > 1,

    epsilon = T alpha s^2 / (2 sigma^2) + log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1)

where s is the sensitivity in units of the clipping threshold C, which depends on who counts as a
neighbour. `participation`: the same data with one party absent, which then sends zeros; s = 1, the
paper's. `replace`: the party has other data; two clipped matrices may differ by 2C, so s = 2.
`row`: one row has other features, of which only its own embeddings count; sigma is in units of the
diameter of the region that they are brought into, so s = 1, and T counts the releases of one row.

Batches and participation are known to the server, so nothing is gained by subsampling, and no
amplification is claimed.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from common.errors import ConfigError
from common.privacy.settings import Adjacency

SENSITIVITY: dict[Adjacency, float] = {"participation": 1.0, "replace": 2.0, "row": 1.0}

# alpha, close enough together for three digits; Opacus's own end at 63, which overstates an epsilon below 0.4.
_ORDERS = [1 + 0.01 * 1.05**step for step in range(331)]
_LARGEST_RELEASES, _LARGEST_NOISE = 10**9, 1e6


def epsilon(releases: float, noise_multiplier: float, delta: float, adjacency: Adjacency) -> float:
    """The smallest epsilon over all orders alpha; 0 if nothing was released.

    Args:
        releases: T, matrices clipped to C that left; a fraction for some that had more noise.
        noise_multiplier: sigma, the noise's standard deviation in units of C.
        delta: above 0 and below 1.
        adjacency: who is a neighbour.
    """
    if releases == 0:
        return 0.0
    rdp = _rdp()
    spent = rdp.compute_rdp(
        q=1.0, noise_multiplier=noise_multiplier / SENSITIVITY[adjacency], steps=releases, orders=_ORDERS
    )
    with warnings.catch_warnings():  # that a wider range of orders would be tighter; it would not by much
        warnings.simplefilter("ignore")
        found, _alpha = rdp.get_privacy_spent(orders=_ORDERS, rdp=spent, delta=delta)
    return float(max(found, 0.0))


def affordable(budget: float, noise_multiplier: float, delta: float, adjacency: Adjacency) -> int:
    """How many releases a budget of epsilon allows; 0 if not even one."""
    return _last(lambda count: epsilon(count, noise_multiplier, delta, adjacency) <= budget, _LARGEST_RELEASES)


def find_noise_multiplier(budget: float, delta: float, releases: int, adjacency: Adjacency) -> float:
    """The smallest sigma (to three digits) with which so many releases stay within a budget of epsilon.

    Raises:
        ConfigError: no reasonable sigma does.
    """
    low, high = 1e-3, _LARGEST_NOISE
    if epsilon(releases, high, delta, adjacency) > budget:
        raise ConfigError(
            f"federation.privacy.epsilon = {budget:g}: impossible for {releases} releases at delta = {delta:g}",
            hint="give a larger epsilon, fewer rounds, or fewer evaluations",
        )
    while high / low > 1.0005:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if epsilon(releases, middle, delta, adjacency) <= budget else (middle, high)
    return float(f"{high * 1.001:.4g}")


def _last(holds: Callable[[int], bool], largest: int) -> int:
    """The largest count for which something holds that holds for all smaller ones."""
    low, high = 0, 1
    while high < largest and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@functools.cache
def _rdp() -> ModuleType:
    """Opacus's Renyi accounting alone: the package as a whole takes 1.7 s and 119 MB in every party's process."""
    package = importlib.util.find_spec("opacus")
    assert package is not None and package.origin is not None  # it is a dependency
    path = Path(package.origin).parent / "accountants" / "analysis" / "rdp.py"
    spec = importlib.util.spec_from_file_location("opacus_rdp", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
