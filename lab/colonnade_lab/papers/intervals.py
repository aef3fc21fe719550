"""Values over seeds: their mean with its interval, differences that are paired seed by seed, and what both decide.

Seeds that happen to agree are no certainty. No deviation between seeds is taken to be smaller than what the measure can
tell apart (`Value.floor`): the binomial error of the test rows, or the distance between two looks. One seed decides
nothing.
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

_UNANIMOUS = 3  # seeds that decide without an interval, all of them alike

# Two-sided 95 % points of Student's t with 1, 2, .. degrees of freedom. scipy.stats takes a second to import.
_T = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its 95 % interval; without ends where there are fewer than two finite values."""

    mean: float
    low: float | None = None
    high: float | None = None

    def within(self, least: float, most: float) -> Interval:
        """The same with ends that values can have: a t interval of two seeds may go beyond 100 %."""
        if self.low is None or self.high is None:
            return self
        return Interval(self.mean, max(self.low, least), min(self.high, most))

    def words(self, digits: int) -> str:
        """`97.21 (97.05 to 97.37)`, and the mean alone where all seeds agree in so many digits."""
        said = f"{self.mean:.{digits}f}"
        if self.low is None or self.high is None:
            return said
        low, high = f"{self.low:.{digits}f}", f"{self.high:.{digits}f}"
        return said if low == high else f"{said} ({low} to {high})"


class Value(float):
    """A measured number of a seed.

    Args:
        floor: least deviation between seeds that is taken to be there, in the number's unit; 0 where it is exact.
        ended: of an infinite one, the cost at which the run ended without getting there; it may have been close.
    """

    floor: float = 0.0
    ended: float = math.inf

    @classmethod
    def of(cls, number: float, floor: float = 0.0, ended: float = math.inf) -> Value:
        """The number with its floor."""
        found = cls(number)
        found.floor, found.ended = floor, ended
        return found


def mean(values: Sequence[float]) -> float:
    """Of these values; not a number where there is none."""
    return statistics.fmean(values) if values else math.nan


def floor(value: float) -> float:
    """The least deviation between seeds of a value; 0 of one that was not measured."""
    return value.floor if isinstance(value, Value) else 0.0


def interval(values: Sequence[float]) -> Interval:
    """Mean of these values with the 95 % interval by Student's t.

    The deviation is that of the values, and no less than their floor. Equal values without a floor have no interval:
    nothing is known of how far the next one is away.
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
    """First minus second, for every seed that both have."""
    return tuple(_difference(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys()))


def ratios(first: Seeds, second: Seeds) -> tuple[float, ...]:
    """First over second, for every seed that both have; not a number where one of them is infinite, or the second 0."""
    return tuple(_ratio(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys()))


def turned(leads: Sequence[float]) -> tuple[float, ...]:
    """The same leads, seen from the other side."""
    return tuple(Value.of(-lead, floor(lead)) for lead in leads)


def decide(leads: Sequence[float], least: float = 0.0) -> Outcome:
    """Outcome of the statement that leads, one a seed, are above `least`.

    A lead that falls short of what was asked for is not reached; an order is reversed only if the other is ahead. Where
    a seed has an infinite lead, since one of two never got there, no interval exists, and three seeds or more have to
    agree.
    """
    found = position(leads, least, math.inf)
    if found == "within":
        return "holds"
    if found == "open":
        return "open"
    behind = least >= 0 and position(leads, 0.0, math.inf) == "below"
    return "reversed" if behind else "not reached"


def position(values: Sequence[float], least: float, most: float) -> Position:
    """Position of the mean of these values, one a seed, beside a range, by the whole of its interval."""
    ends = _ends(values)
    if ends is None:
        return "open"
    low, high = ends
    if low > most or high < least:
        return "above" if low > most else "below"
    return "within" if least < low and high <= most else "open"


def _ends(values: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the interval; None where there are too few seeds to decide anything."""
    if any(map(math.isnan, values)):
        return None
    found = interval(values)
    if found.low is not None and found.high is not None:
        return found.low, found.high
    if len(values) < _UNANIMOUS or all(map(math.isfinite, values)):
        return None
    return min(values), max(values)


def _difference(one: float, other: float) -> Value:
    """Not a number where a run that never got there ended before the other got there: it was stopped too early."""
    for endless, there in ((one, other), (other, one)):
        if math.isinf(endless) and isinstance(endless, Value) and there > endless.ended:
            return Value(math.nan)
    return Value.of(one - other, math.hypot(floor(one), floor(other)))


def _ratio(one: float, other: float) -> Value:
    if not other or not math.isfinite(one) or not math.isfinite(other):
        return Value(math.nan)
    found = one / other
    return Value.of(found, math.hypot(floor(one), found * floor(other)) / abs(other))
