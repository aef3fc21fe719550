"""Bands of scores, from the riskiest to the safest: gain, lift, and the effect of a cut-off below each band.

A score here is a risk: the higher, the likelier the positive class. Its rows are called bads, the others goods. A
cut-off refuses the rows at or above it and approves the others.

Outcomes by group omit groups of fewer than `FEWEST_SHOWN` people. Further groups are suppressed, the smallest first,
until at least two groups with together at least `FEWEST_SHOWN` people are: otherwise the totals less the groups shown
would reveal the small one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.common.data.columns.distribution import stability, tenths
from colonnade.server.training.metrics import gains

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST = 10  # bands of about equal numbers of rows

FEWEST = 5  # rows of a band at least


@dataclass(frozen=True)
class Bands:
    """Arrays float64 (bands,), the riskiest band first; `low` and `high` are a band's lowest and highest score."""

    low: Floats
    high: Floats
    people: Floats
    bads: Floats

    @property
    def goods(self) -> Floats:
        return self.people - self.bads

    @property
    def bad_rate(self) -> Floats:
        return self.bads / self.people

    @property
    def taken(self) -> Floats:
        """Share of the rows in this band and riskier ones, which a cut-off at `low` refuses."""
        return _shares(self.people)

    @property
    def bads_taken(self) -> Floats:
        """Share of all bads, the gain."""
        return _shares(self.bads)

    @property
    def goods_taken(self) -> Floats:
        return _shares(self.goods)

    @property
    def lift(self) -> Floats:
        """Bad rate of the band over that of all rows."""
        return self.bad_rate / float(self.bads.sum() / self.people.sum())

    @property
    def approved_bad_rate(self) -> Floats:
        """Bad rate of the rows below `low`; NaN for the last band."""
        rest = self.people.sum() - np.cumsum(self.people)
        return _over_all(self.bads.sum() - np.cumsum(self.bads), rest, np.nan)

    @property
    def odds(self) -> Floats:
        """Goods per bad in the band; infinite without bads."""
        return _over_all(self.goods, self.bads, np.inf)


def _shares(counts: Floats) -> Floats:
    return np.cumsum(counts) / float(counts.sum())


def _over_all(above: Floats, below: Floats, otherwise: float) -> Floats:
    found: Floats = np.divide(above, below, out=np.full_like(below, otherwise), where=below > 0)
    return found


def bands(scores: Floats, bad: Bools, most: int = MOST, fewest: int = FEWEST) -> Bands:
    """Bands of about equal numbers of rows, at least `fewest` each; rows of equal score share a band.

    Args:
        scores: float64 (rows,), finite.
        bad: bool (rows,), with both values.
    """
    rows, found = gains.counts(scores, bad)
    rows, found = rows[1:], found[1:]  # at every distinct score, in descending order
    ends: list[int] = []
    last = 0.0
    for share in np.arange(1, most) / most:
        at = int(np.abs(rows - share * rows[-1]).argmin())
        if rows[at] - last >= fewest and rows[-1] - rows[at] >= fewest:
            ends.append(at)
            last = rows[at]
    ends.append(len(rows) - 1)
    values = np.unique(scores)[::-1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    people, bads = (np.diff(counts[ends], prepend=0.0) for counts in (rows, found))
    return Bands(values[ends], values[starts], people, bads)


@dataclass(frozen=True)
class CutOffOutcome:
    """Effect of a cut-off on some rows, or on a group; rates are None where their denominator is 0."""

    people: int
    bads: int
    approved: int
    bads_refused: int
    auc: float | None

    @classmethod
    def of(cls, scores: Floats, bad: Bools, cut_off: float) -> CutOffOutcome:
        refused, both = scores >= cut_off, 0 < bad.sum() < len(bad)
        auc = gains.auc(scores, bad) if both else None
        return cls(len(bad), int(bad.sum()), int((~refused).sum()), int((refused & bad).sum()), auc)

    @property
    def approval_rate(self) -> float:
        return self.approved / self.people

    @property
    def bad_rate(self) -> float:
        return self.bads / self.people

    @property
    def approved_bad_rate(self) -> float | None:
        return _over(self.bads - self.bads_refused, self.approved)

    @property
    def true_positive_rate(self) -> float | None:
        """Share of bads that are refused."""
        return _over(self.bads_refused, self.bads)

    @property
    def false_positive_rate(self) -> float | None:
        """Share of goods that are refused."""
        return _over(self.people - self.approved - self.bads_refused, self.people - self.bads)


def _over(above: int, below: int) -> float | None:
    return above / below if below else None


def shift(before: Floats, now: Floats) -> tuple[float, float] | None:
    """Population stability index of scores against earlier ones, and its 99.9 % quantile under no change.

    Bins are tenths of the earlier scores; scores outside their range have bins of their own. None without rows.
    """
    if not len(before) or not len(now):
        return None
    edges = tenths(np.sort(before))
    return stability(*(_counted(scores, edges) for scores in (before, now)))


def _counted(scores: Floats, edges: Floats) -> NDArray[np.int64]:
    inside = np.diff(np.searchsorted(np.sort(scores), edges))
    return np.append(inside, len(scores) - inside.sum())


FEWEST_SHOWN = 30  # people of a group that is shown

FOUR_FIFTHS = 0.8
"""Adverse impact ratio below which a difference needs a reason, by the four-fifths rule of the EEOC's Uniform
Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D (1978)."""


@dataclass(frozen=True)
class Disparities:
    """Outcomes of the groups shown, by name.

    Args:
        small: names of groups that are too small.
        beside: names of groups suppressed so that the small ones cannot be computed.
    """

    shown: Mapping[str, CutOffOutcome]
    small: tuple[str, ...]
    beside: tuple[str, ...]

    def impact(self, name: str) -> float | None:
        """Adverse impact ratio: approval rate over the highest of the groups shown; None if none is approved."""
        best = max(one.approval_rate for one in self.shown.values())
        return self.shown[name].approval_rate / best if best else None


def disparities(names: Sequence[str], scores: Floats, bad: Bools, cut_off: float) -> Disparities:
    """Outcomes by group; the other arguments are those of `CutOffOutcome.of`."""
    kinds, place, sizes = np.unique(np.array(names, dtype=str), return_inverse=True, return_counts=True)
    order = np.argsort(sizes, kind="stable").tolist()
    small = [at for at in order if sizes[at] < FEWEST_SHOWN]
    hidden = list(small)
    for at in order[len(small) :]:
        if not small or (len(hidden) > 1 and sizes[hidden].sum() >= FEWEST_SHOWN):
            break
        hidden.append(at)
    shown = {}
    for at in sorted(set(order) - set(hidden), key=lambda at: (-sizes[at], at)):
        here = place == at
        shown[str(kinds[at])] = CutOffOutcome.of(scores[here], bad[here], cut_off)
    return Disparities(shown, *(tuple(str(kinds[at]) for at in some) for some in (small, hidden[len(small) :])))
