"""Ranking of rows by a class's probability: areas under curves, cumulative gains, lift and the KS statistic.

Rows of equal probability share their positions in proportion, so no metric depends on the order of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 0.1  # share of the rows for `lift` and `gain`: the top decile

_DEPTHS = np.array([0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, *(step / 100 for step in range(1, 101))])
"""Shares of the rows near which the gains curve is stored: precision changes fastest where few rows are taken."""

Numbers = NDArray[np.float64]


def counts(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Cumulative numbers of rows and of positive rows at every distinct score, in descending order, from (0, 0).

    Scores are float64 (rows,), higher for the more likely.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    return np.append(0.0, ends + 1.0), np.append(0.0, np.cumsum(positive[order])[ends])


def auc(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """Area under the ROC curve; arguments as for `counts`, at least one row of each class."""
    rows, found = counts(scores, positive)
    return float(np.trapezoid(found, rows - found) / (found[-1] * (rows[-1] - found[-1])))


def average_precision(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """Mean precision over the positive rows, at the score of each; arguments as for `steps`."""
    rows, found = counts(scores, positive)
    return float((np.diff(found) * found[1:] / rows[1:]).sum() / found[-1])


def steps(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """`counts` divided by their totals; at least one row is positive."""
    rows, found = counts(scores, positive)
    return rows / rows[-1], found / found[-1]


def gain(scores: Numbers, positive: NDArray[np.bool_], depth: float = TOP) -> float:
    """Share of the positive rows among the first `depth` of all rows; arguments as for `steps`."""
    return float(np.interp(depth, *steps(scores, positive)))


def ks(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The largest distance between the score's distributions in the two classes; at least one row of each."""
    return ks_at(scores, positive)[0]


def ks_at(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """`ks`, and the lowest score above the point where it is reached."""
    rows, found = counts(scores, positive)
    apart = np.abs(found / found[-1] - (rows - found) / (rows[-1] - found[-1]))
    place = int(apart.argmax())
    return float(apart[place]), float(-np.sort(-scores)[max(int(rows[place]), 1) - 1])


def curve(scores: Numbers, positive: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Cumulative gains for charts, from which ROC, precision and recall follow, at up to some hundred scores.

    A point takes all rows from a `score` on: `rows` is their share of all rows, `found` of the positive ones, to six
    digits. The first point takes no row and has no score. At least one row is positive.
    """
    rows, found = counts(scores, positive)
    apart = np.abs(found / found[-1] - rows / rows[-1])  # the place of the KS statistic is among the points
    kept = np.unique([0, apart.argmax(), *np.searchsorted(rows, _DEPTHS * rows[-1] - 1e-9)])
    values: list[float | None] = [None, *np.unique(scores)[::-1].tolist()]
    shares = zip(kept.tolist(), rows[kept] / rows[-1], found[kept] / found[-1], strict=True)
    return [{"score": values[at], "rows": round(float(taken), 6), "found": round(float(hits), 6)}
            for at, taken, hits in shares]  # fmt: skip
