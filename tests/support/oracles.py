"""Results of other libraries on noise, for several tests.

They are imported on use: that takes a second each, and every worker imports all tests.
"""

from __future__ import annotations

from collections.abc import Sequence


def exact_epsilon(releases: Sequence[tuple[float, int]], delta: float, *, replace: bool = False) -> float:
    """Epsilon by Google's accountant of privacy loss distributions: pairs of a sigma and its number of releases."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation)
    for sigma, count in releases:
        accountant.compose(GaussianDpEvent(sigma), count)
    return float(accountant.get_epsilon(delta))


def renyi_epsilon(sigma: float, releases: int, delta: float, orders: Sequence[float] | None = None) -> float:
    """Epsilon by Google's accountant of Rényi divergences; at its own orders if none are given."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders)
    accountant.compose(GaussianDpEvent(sigma), releases)
    return float(accountant.get_epsilon(delta))
