"""Values over seeds: means with intervals, differences paired by seed, and the decisions that follow from them.

Agreement between a few seeds is not certainty. The deviation between seeds is at least the resolution of the measure
(`Value.floor`): the binomial error of the test rows, or the distance between two evaluations. One seed decides nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Seeds = Mapping[int, float]
"""A value a seed."""

Outcome = Literal["holds", "not reached", "reversed", "open"]
"""Of an order: it is as stated; it has not the stated lead; it is the other way round; the seeds do not decide."""

Position = Literal["within", "above", "below", "open"]
"""Of an interval beside a range: inside, outside on one side, or the seeds do not decide."""

_UNANIMOUS = 3  # unanimous seeds that decide without an interval

# Two-sided 95 % points of Student's t with 1, 2, .. degrees of freedom. scipy.stats takes a second to import.
_T = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its 95 % interval, which are absent for fewer than two finite values."""

    mean: float
    low: float | None = None
    high: float | None = None

    def within(self, least: float, most: float) -> Interval:
        """Cuts the interval at the limits of the measure: a t interval of two seeds may exceed 100 %."""
        if self.low is None or self.high is None:
            return self
        return Interval(self.mean, max(self.low, least), min(self.high, most))

    def words(self, digits: int) -> str:
        """`97.21 (97.05 to 97.37)`, or the mean alone if all seeds agree to this many digits."""
        said = f"{self.mean:.{digits}f}"
        if self.low is None or self.high is None:
            return said
        low, high = f"{self.low:.{digits}f}", f"{self.high:.{digits}f}"
        return said if low == high else f"{said} ({low} to {high})"


class Value(float):
    """A measured number of a seed.

    Args:
        floor: least deviation assumed between seeds, in the number's unit; 0 for exact measures.
        ended: for an infinite value, the cost at which the run ended without reaching the target.
    """

    floor: float = 0.0
    ended: float = math.inf

    @classmethod
    def of(cls, number: float, floor: float = 0.0, ended: float = math.inf) -> Value:
        found = cls(number)
        found.floor, found.ended = floor, ended
        return found


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def floor(value: float) -> float:
    return value.floor if isinstance(value, Value) else 0.0


def interval(values: Sequence[float]) -> Interval:
    """Mean with the 95 % interval by Student's t.

    The deviation is at least the values' floor. Equal values without a floor have no interval, since they say nothing
    about the deviation.
    """
    middle = mean(values)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return Interval(middle)
    deviation = max(statistics.stdev(values), *map(floor, values))
    if not deviation:
        return Interval(middle)
    half = _T[min(len(values) - 1, len(_T)) - 1] * deviation / math.sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def paired(first: Seeds, second: Seeds) -> tuple[float, ...]:
    return tuple(_difference(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys()))


def ratios(first: Seeds, second: Seeds) -> tuple[float, ...]:
    """First over second, for every seed that both have; NaN if one is infinite or the second 0."""
    return tuple(_ratio(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys()))


def turned(leads: Sequence[float]) -> tuple[float, ...]:
    return tuple(Value.of(-lead, floor(lead)) for lead in leads)


def decide(leads: Sequence[float], least: float = 0.0) -> Outcome:
    """Decides the statement that the leads, one per seed, are above `least`.

    A lead below `least` is "not reached"; an order is "reversed" only if the other side is ahead. If a seed's lead is
    infinite, since one side never reached the target, no interval exists, and at least three seeds have to agree.
    """
    found = position(leads, least, math.inf)
    if found == "within":
        return "holds"
    if found == "open":
        return "open"
    behind = least >= 0 and position(leads, 0.0, math.inf) == "below"
    return "reversed" if behind else "not reached"


def position(values: Sequence[float], least: float, most: float) -> Position:
    """Position of the mean of these values, one per seed, relative to a range, by its whole interval."""
    ends = _ends(values)
    if ends is None:
        return "open"
    low, high = ends
    if low > most or high < least:
        return "above" if low > most else "below"
    return "within" if least < low and high <= most else "open"


def _ends(values: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the interval; None if there are too few seeds."""
    if any(map(math.isnan, values)):
        return None
    found = interval(values)
    if found.low is not None and found.high is not None:
        return found.low, found.high
    if len(values) < _UNANIMOUS or all(map(math.isfinite, values)):
        return None
    return min(values), max(values)


def _difference(one: float, other: float) -> Value:
    """NaN if a run that never reached the target was stopped before the other reached it."""
    for endless, there in ((one, other), (other, one)):
        if math.isinf(endless) and isinstance(endless, Value) and there > endless.ended:
            return Value(math.nan)
    return Value.of(one - other, math.hypot(floor(one), floor(other)))


def _ratio(one: float, other: float) -> Value:
    if not other or not math.isfinite(one) or not math.isfinite(other):
        return Value(math.nan)
    found = one / other
    return Value.of(found, math.hypot(floor(one), found * floor(other)) / abs(other))
