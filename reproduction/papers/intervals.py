"""Values over seeds: their mean with its interval, and differences that are paired seed by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Seeds = Mapping[int, float]
"""A value a seed."""

Outcome = Literal["holds", "reversed", "open"]
"""Of an order: it is as stated; it is the other way round; the seeds do not decide."""

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


def mean(values: Sequence[float]) -> float:
    """Of these values; not a number where there is none."""
    return statistics.fmean(values) if values else math.nan


def interval(values: Sequence[float]) -> Interval:
    """Mean of these values with the 95 % interval by Student's t."""
    middle = mean(values)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return Interval(middle)
    half = _T[min(len(values) - 1, len(_T)) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def paired(first: Seeds, second: Seeds) -> tuple[float, ...]:
    """First minus second, for every seed that both have."""
    return tuple(first[seed] - second[seed] for seed in sorted(first.keys() & second.keys()))


def decide(leads: Sequence[float], least: float = 0.0) -> Outcome:
    """Outcome of the statement that leads, one a seed, are above `least`.

    One seed decides nothing. Where a seed has an infinite lead, since one of two never got there, no interval exists,
    and all seeds have to agree.
    """
    if len(leads) < 2 or any(map(math.isnan, leads)):
        return "open"
    found = interval(leads)
    low = min(leads) if found.low is None else found.low
    high = max(leads) if found.high is None else found.high
    if low > least:
        return "holds"
    return "reversed" if high < least else "open"
