"""Standard errors of metrics, estimated from the measured rows: how much other rows may differ by chance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from colonnade.server.training.metrics.quality import Classes, Probabilities

Floats = NDArray[np.float64]


def of_classes(probabilities: Probabilities, labels: Classes) -> dict[str, float]:
    """Standard errors of `accuracy`, `balanced_accuracy`, `loss`, `log_loss`, and with two classes `auc`.

    Probabilities are float64 (rows, classes), labels int64 (rows,). Empty for a single row, or if a probability is not
    finite.
    """
    if len(labels) < 2 or not np.isfinite(probabilities).all():
        return {}
    right = probabilities.argmax(axis=1) == labels
    losses = -np.log(probabilities[np.arange(len(labels)), labels].clip(np.finfo(np.float64).tiny))
    groups = [right[labels == number] for number in np.unique(labels)]
    recalls = sum(float(group.mean() * (1 - group.mean())) / len(group) for group in groups)
    found = {
        "accuracy": _of_mean(right.astype(np.float64)), "balanced_accuracy": math.sqrt(recalls) / len(groups),
        "loss": _of_mean(losses), "log_loss": _of_mean(losses),
    }  # fmt: skip
    if probabilities.shape[1] == 2 and min(map(len, groups)) > 1 and len(groups) == 2:
        found["auc"] = _of_auc(probabilities[:, 1], labels == 1)
    return found


def of_numbers(predicted: Floats, true: Floats) -> dict[str, float]:
    """Standard errors of `rmse`, `mae` and `r2` of a single target, in its own units.

    Arguments are float64 (rows, targets). Empty for several targets, for fewer than two rows, or if a number is not
    finite.
    """
    if true.shape[1] != 1 or len(true) < 2 or not np.isfinite(predicted).all():
        return {}
    with np.errstate(over="ignore", invalid="ignore"):  # squares overflow if the model diverges
        found = _of_errors((predicted - true)[:, 0], true[:, 0])
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _of_errors(wrong: Floats, true: Floats) -> dict[str, float]:
    squares, spread = np.square(wrong), np.square(true - true.mean())
    found = {"mae": _of_mean(np.abs(wrong))}
    if squares.mean() > 0:
        found["rmse"] = _of_mean(squares) / (2 * math.sqrt(squares.mean()))
    if spread.mean() > 0:
        share = squares.mean() / spread.mean()  # R2 is 1 - share, a ratio of two means
        found["r2"] = _of_mean(squares - share * spread) / float(spread.mean())
    return found


def _of_mean(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _of_auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """DeLong et al. (1988): from each row's share of the other class's rows that it is ranked correctly against."""
    ones, others = np.sort(scores[positive]), np.sort(scores[~positive])
    above = (np.searchsorted(others, ones, "left") + np.searchsorted(others, ones, "right")) / (2 * len(others))
    below = 1 - (np.searchsorted(ones, others, "left") + np.searchsorted(ones, others, "right")) / (2 * len(ones))
    return math.sqrt(above.var(ddof=1) / len(ones) + below.var(ddof=1) / len(others))
