"""Frontiers: evaluations that no other evaluation dominates at the same or a lower cost, on validation rows.

Test accuracy is carried along and never compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from colonnade_lab.frontier.plan import DELAYS
from colonnade_lab.papers.measures import Point, RunRecord, share

_MIB = 2**20

MIB, ROUNDS = "mib", "rounds"
SECONDS: Mapping[str, int] = {f"seconds-{delay}": delay for delay in DELAYS}
"""Axes of simulated time, and the delay of each in milliseconds."""

AXES = (MIB, ROUNDS, *SECONDS)
"""Costs that accuracy is compared against."""

_OF_ONE_RUN = f"seconds-{DELAYS[len(DELAYS) // 2]}"


@dataclass(frozen=True)
class FrontierPoint:
    """One evaluation of a variant of a protocol.

    Args:
        cost: on the axis in question, mean over seeds.
        validation: accuracy on validation rows, mean over seeds.
        tests: accuracy on test rows, one per seed.
    """

    protocol: str
    variant: str
    cost: float
    validation: float
    tests: tuple[float, ...]

    @property
    def test(self) -> float:
        return statistics.fmean(self.tests)


Runs = Mapping[int, Sequence[RunRecord]]
"""A variant's records, one a seed, for each delay; a synchronous protocol has the same ones for all of them."""


def looks(protocol: str, variant: str, runs: Runs, axis: str) -> list[FrontierPoint]:
    """All evaluations of a variant. An axis without delays uses an asynchronous protocol's runs at the middle one."""
    delay = SECONDS.get(axis, SECONDS[_OF_ONE_RUN])
    found = []
    for points in zip(*(record.points for record in runs[delay]), strict=False):
        seen = [point.validation for point in points]
        if len({point.round for point in points}) > 1 or None in seen:
            continue  # seeds were evaluated at different rounds
        costs = [_cost(point, record, axis) for point, record in zip(points, runs[delay], strict=True)]
        validation = statistics.fmean(each for each in seen if each is not None)
        tests = tuple(share(record, point.accuracy) for point, record in zip(points, runs[delay], strict=True))
        found.append(FrontierPoint(protocol, variant, statistics.fmean(costs), validation, tests))
    return found


def frontier(found: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the evaluations that are not dominated, by rising cost."""
    kept: list[FrontierPoint] = []
    for look in sorted(found, key=lambda one: (one.cost, -one.validation)):
        if not kept or look.validation > kept[-1].validation:
            kept.append(look)
    return kept


def within(front: Iterable[FrontierPoint], budget: float) -> FrontierPoint | None:
    """Returns the evaluation that a budget selects from a frontier; None if the budget allows none."""
    return max((look for look in front if look.cost <= budget), key=lambda look: look.validation, default=None)


def _cost(point: Point, record: RunRecord, axis: str) -> float:
    if axis == MIB:
        return point.bytes / _MIB
    if axis == ROUNDS:
        return float(point.round)
    if record.clock is None:
        return point.seconds
    before, each = record.clock[f"{SECONDS[axis]}"]
    return before + each * point.round
