"""How far what is lost without a party can be told from chance: paired resamples of the measured rows.

The same resamples (Efron, "Bootstrap Methods", 1979) measure the model with and without each party, so that rows which
are hard for both do not widen the interval of the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Metric = Callable[[Numbers], Numbers]
"""Counts of rows, (resamples, rows), to the metric of each resample, (resamples,); NaN where it is undefined."""

DRAWS = 1000
_AT_ONCE = 2_000_000  # counts in memory
_ENDS = (2.5, 97.5)


def metric_of(name: str, said: Numbers, truth: NDArray[np.generic]) -> Metric:
    """Prepares `accuracy`, `balanced_accuracy`, `auc` (of the second class) or `r2`.

    Args:
        said: probabilities (rows, classes), or predicted targets (rows, targets).
        truth: classes (rows,), or targets (rows, targets).
    """
    if name == "r2":
        return _r2(said, np.asarray(truth, np.float64))
    if name == "auc":
        return _auc(said[:, 1], truth == 1)
    hits = (said.argmax(1) == truth).astype(np.float64)
    if name == "accuracy":
        return lambda counts: counts @ hits / counts.sum(1)
    members = [np.flatnonzero(truth == number) for number in np.unique(truth)]

    def balanced(counts: Numbers) -> Numbers:
        with np.errstate(invalid="ignore"):
            recalls = [counts[:, own] @ hits[own] / counts[:, own].sum(1) for own in members]
        found: Numbers = np.nanmean(recalls, axis=0)
        return found

    return balanced


def resampled(metrics: list[list[Metric]], rows: int, seed: int) -> Numbers:
    """Mean of each list of metrics on the same resamples of the rows, (lists, resamples)."""
    found = [
        [np.mean([metric(counts) for metric in several], axis=0) for several in metrics]
        for counts in _resamples(rows, seed)
    ]
    return np.concatenate(found, axis=1)


def interval(draws: Numbers) -> tuple[float, float]:
    """The middle 95% of the resamples."""
    kept = draws[np.isfinite(draws)]
    low, high = np.percentile(kept, _ENDS).tolist() if len(kept) else (np.nan, np.nan)
    return low, high


def _resamples(rows: int, seed: int) -> Iterator[Numbers]:
    draw, at_once = np.random.default_rng(seed), max(1, _AT_ONCE // rows)
    for begun in range(0, DRAWS, at_once):
        some = min(at_once, DRAWS - begun)
        yield draw.multinomial(rows, np.full(rows, 1 / rows), size=some).astype(np.float64)


def _auc(scores: Numbers, positive: NDArray[np.bool_]) -> Metric:
    order = np.argsort(scores, kind="stable")
    bads = positive[order].astype(np.float64)
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))  # of rows with equal scores

    def auc(counts: Numbers) -> Numbers:
        sorted_counts = counts[:, order]
        above = np.add.reduceat(sorted_counts * bads, starts, axis=1)
        below = np.add.reduceat(sorted_counts * (1 - bads), starts, axis=1)
        beaten = np.cumsum(below, axis=1) - below / 2
        with np.errstate(invalid="ignore"):
            found: Numbers = (above * beaten).sum(1) / (above.sum(1) * below.sum(1))
        return found

    return auc


def _r2(predicted: Numbers, true: Numbers) -> Metric:
    centred = true - true.mean(0)  # sums of squares of large numbers would lose their digits
    squares, varied = np.square(predicted - true), np.ptp(true, axis=0) > 0

    def r2(counts: Numbers) -> Numbers:
        total = counts.sum(1, keepdims=True)
        spread = counts @ np.square(centred) - np.square(counts @ centred) / total
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(varied & (spread > 0), 1 - counts @ squares / spread, 0.0)
        found: Numbers = each.mean(1)
        return found

    return r2
