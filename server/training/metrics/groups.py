"""A cut-off's outcome by groups of people, without groups that are too small to be shown.

A group of fewer than `FEWEST` people is suppressed. So are further groups, the smallest first, until the suppressed
ones together have `FEWEST` people and are at least two: else the totals less the groups shown would give the small one
away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.server.training.metrics.bands import Bools, CutOffOutcome, Floats

FEWEST = 30
"""People of a group that is shown."""

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


def disparities(names: Sequence[str], scores: Floats, bad: Bools, cut_off: float, fewest: int = FEWEST) -> Disparities:
    """Outcomes by group.

    Args:
        scores, bad, cut_off: as for `CutOffOutcome.of`.
    """
    kinds, place, sizes = np.unique(np.array(names, dtype=str), return_inverse=True, return_counts=True)
    order = np.argsort(sizes, kind="stable").tolist()
    small = [at for at in order if sizes[at] < fewest]
    hidden = list(small)
    for at in order[len(small) :]:
        if not small or (len(hidden) > 1 and sizes[hidden].sum() >= fewest):
            break
        hidden.append(at)
    shown = {}
    for at in sorted(set(order) - set(hidden), key=lambda at: (-sizes[at], at)):
        here = place == at
        shown[str(kinds[at])] = CutOffOutcome.of(scores[here], bad[here], cut_off)
    return Disparities(shown, *(tuple(str(kinds[at]) for at in some) for some in (small, hidden[len(small) :])))
