"""Frontiers: evaluations that no other evaluation dominates at the same or a lower cost, on validation rows.

Test accuracy is carried along and never compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from colonnade_lab.frontier.plan import DELAYS, FrontierPlan
from colonnade_lab.papers.intervals import decide, paired
from colonnade_lab.papers.measures import Point, RunRecord, share
from colonnade_lab.papers.running import Job

_MIB = 2**20

MIB, ROUNDS = "mib", "rounds"
SECONDS: Mapping[str, int] = {f"seconds-{delay}": delay for delay in DELAYS}
"""Axes of simulated time, and the delay of each in milliseconds."""

AXES = (MIB, ROUNDS, *SECONDS)
"""Costs that accuracy is compared against."""

_OF_ONE_RUN = f"seconds-{DELAYS[len(DELAYS) // 2]}"


@dataclass(frozen=True)
class FrontierPoint:
    """One evaluation of a variant of a protocol: cost on an axis and accuracy on validation rows, means over seeds, and
    accuracy on test rows, one per seed.
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


Kept = Callable[[Job], RunRecord | None]


@dataclass(frozen=True)
class SetFrontier:
    """A set's frontiers.

    Args:
        seeds: number of seeds with complete runs, by protocol; protocols without any are absent.
        fronts: by axis and protocol.
        references: protocols that no budget selects.
    """

    name: str
    seeds: Mapping[str, int]
    fronts: Mapping[str, Mapping[str, Sequence[FrontierPoint]]]
    references: frozenset[str]

    def ranked(self, axis: str, budget: float) -> list[FrontierPoint]:
        """Returns each protocol's best evaluation within a budget, most accurate on validation rows first."""
        found = [within(front, budget) for name, front in self.fronts[axis].items() if name not in self.references]
        return sorted((look for look in found if look is not None), key=lambda look: -look.validation)

    def leaders(self, axis: str, budget: float) -> list[FrontierPoint]:
        """Returns the evaluations within a budget that no other beats: no test difference, paired by seed, excludes 0.

        A single one leads. With one seed there are no differences, so all lead.
        """
        found = self.ranked(axis, budget)
        return [look for look in found if not any(_ahead(other, look) for other in found)]

    @property
    def decides(self) -> bool:
        return min(self.seeds.values(), default=0) > 1

    def of(self, axis: str, protocol: str, budget: float) -> FrontierPoint | None:
        return within(self.fronts[axis].get(protocol, ()), budget)

    def pareto(self, axis: str) -> list[FrontierPoint]:
        return frontier(
            look for name, front in self.fronts[axis].items() if name not in self.references for look in front
        )


def set_frontier(plan: FrontierPlan, name: str, kept: Kept, seeds: int) -> SetFrontier:
    """Builds the frontiers from stored results, for the seeds that all variants of a protocol have."""
    complete: dict[str, int] = {}
    fronts: dict[str, dict[str, list[FrontierPoint]]] = {axis: {} for axis in AXES}
    for protocol in plan.protocols:
        runs, complete_seeds = _runs(plan, name, protocol, kept, seeds)
        if not complete_seeds:
            continue
        complete[protocol] = complete_seeds
        for axis, found in fronts.items():
            every = [look for variant, each in runs.items() for look in looks(protocol, variant, each, axis)]
            found[protocol] = frontier(every)
    references = frozenset(each for each, entry in plan.protocols.items() if entry.reference)
    return SetFrontier(name, complete, fronts, references)


def _ahead(one: FrontierPoint, other: FrontierPoint) -> bool:
    return decide(paired(dict(enumerate(one.tests)), dict(enumerate(other.tests)))) == "holds"


def _runs(plan: FrontierPlan, of: str, protocol: str, kept: Kept, seeds: int) -> tuple[dict[str, Runs], int]:
    """Records of the seeds that all variants and delays have, by variant, and the number of those seeds."""
    records = {
        (variant, delay, seed): kept(job)
        for variant in plan.variants(protocol)
        for seed in range(seeds)
        for delay, job in plan.runs(of, protocol, variant, seed).items()
    }
    whole = [seed for seed in range(seeds) if all(record for key, record in records.items() if key[2] == seed)]
    delays = list(dict.fromkeys(delay for _, delay, _ in records))
    found = {
        variant: {
            delay: [record for seed in whole if (record := records[variant, delay, seed]) is not None]
            for delay in delays
        }
        for variant in plan.variants(protocol)
    }
    return dict(found), len(whole)
