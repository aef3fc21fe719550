"""Ranking of rows by the second class's probability: cumulative gains, lift and the KS statistic.

Rows of equal probability have no order: they are taken in proportion, so that no metric depends on the order of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 0.1
"""Share of the rows that `lift` and `gain` are of: the top decile."""

DEPTHS = tuple(step / 20 for step in range(21))
"""Shares of the rows at which the gains curve is kept."""

Numbers = NDArray[np.float64]


def steps(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Shares of all rows and of the positive ones above every distinct score, from (0, 0) to (1, 1).

    Args:
        scores: float64 (rows,), higher for the more likely.
        positive: (rows,), of which at least one is True.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    rows, found = ends + 1.0, np.cumsum(positive[order])[ends]
    return np.append(0.0, rows / len(scores)), np.append(0.0, found / positive.sum())


def gain(scores: Numbers, positive: NDArray[np.bool_], depth: float = TOP) -> float:
    """Share of the positive rows that the first `depth` of all rows have; arguments as for `steps`."""
    return float(np.interp(depth, *steps(scores, positive)))


def ks(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The largest distance between the score's distributions in the two classes, each of at least one row."""
    shares, gains = steps(scores, positive)
    rows, found = shares * len(scores), gains * positive.sum()
    others = (rows - found) / (len(scores) - positive.sum())
    return float(np.abs(gains - others).max())


def curve(scores: Numbers, positive: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The cumulative gains at `DEPTHS`, for a chart: `rows` and `found`, both shares."""
    found = np.interp(DEPTHS, *steps(scores, positive))
    return [{"rows": depth, "found": float(share)} for depth, share in zip(DEPTHS, found, strict=True)]
