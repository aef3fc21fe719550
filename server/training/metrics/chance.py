"""Verdict on an evaluation: is the model better than one that ignores all columns?

A model that has learned nothing reaches chance level only on average. A value therefore counts as better if it is more
than two standard errors above chance, with the standard error under independence of outputs and labels. One in 44
such models passes, and a good model can fail on few rows: the verdict then is that these rows do not show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ERRORS = 2.0
"""Number of standard errors that a value must be above chance."""

DIVERGED: Mapping[str, Any] = {"metric": "diverged", "above": False}
"""Verdict on a model with non-finite outputs."""

_ROUNDING = 1e-9
_WORDS = {"auc": "AUC", "balanced_accuracy": "balanced accuracy", "gain_on_mean": "gain on the mean"}

Probabilities = NDArray[np.float64]
Classes = NDArray[np.int64]


def of_classes(probabilities: Probabilities, labels: Classes, auc: float | None) -> dict[str, Any] | None:
    """Verdict on class probabilities: by AUC with two classes, by balanced accuracy with more.

    Args:
        probabilities: finite, float64 (rows, classes).
        labels: class numbers, int64 (rows,), at least one.
        auc: with two classes, their AUC; None where these rows have one class.

    Returns:
        `metric`, its `value`, the level of `chance`, the standard `error`, and `above`: True if better than chance.
        None if the rows have a single class.
    """
    if len(present := np.unique(labels)) < 2:
        return None
    if probabilities.shape[1] == 2:
        assert auc is not None  # both classes have rows
        return _verdict("auc", auc, 0.5, _auc_error(probabilities[:, 1], labels == 1))
    predicted = probabilities.argmax(axis=1)
    shares = np.array([(predicted == number).mean() for number in present])
    rows = np.array([(labels == number).sum() for number in present])
    recalls = np.array([(predicted[labels == number] == number).mean() for number in present])
    error = math.sqrt(float((shares * (1 - shares) / rows).sum())) / len(present)
    return _verdict("balanced_accuracy", float(recalls.mean()), 1 / len(present), error)


def of_numbers(model: NDArray[np.float64], mean: NDArray[np.float64]) -> dict[str, Any] | None:
    """Verdict on predicted targets: the gain in squared error over predicting the training rows' mean.

    Both arguments are squared errors on the scale of training, float64 (rows, targets). Returns as `of_classes`; None
    for a single row, or if an error is not finite.
    """
    gained = (mean - model).mean(axis=1)
    if len(gained) < 2 or not np.isfinite(gained).all():
        return None
    return _verdict("gain_on_mean", float(gained.mean()), 0.0, float(gained.std(ddof=1)) / math.sqrt(len(gained)))


def warning(verdict: Mapping[str, Any] | None, part: str, rows: str) -> str | None:
    """Warning for the reader of a verdict; None without a verdict, or if the model is better than chance.

    `rows` names the trivial model for comparison, such as "always saying the commonest class".
    """
    if verdict is None or verdict["above"]:
        return None
    if verdict["metric"] == DIVERGED["metric"]:
        return f"on the {part} rows the model has outputs that are not finite: it has diverged"
    if verdict["metric"] == "gain_on_mean":
        found = "its squared error is not below that of the mean by more than two standard errors"
    else:
        value, chance, error = (verdict[key] for key in ("value", "chance", "error"))
        name = _WORDS[verdict["metric"]]
        found = f"{name} {value:.3f}, by chance {chance:.3f} with a standard error of {error:.3f}"
    return f"on the {part} rows the model is no better than {rows}: {found}"


def _auc_error(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Standard deviation of the AUC where scores and classes are independent, ties included (Mann and Whitney)."""
    rows, ones = len(scores), int(positive.sum())
    _, ties = np.unique(scores, return_counts=True)
    tied = float((ties.astype(np.float64) ** 3 - ties).sum()) / (rows * (rows - 1))
    return math.sqrt(max(rows + 1 - tied, 0.0) / (12 * ones * (rows - ones)))


def _verdict(metric: str, value: float, chance: float, error: float) -> dict[str, Any]:
    above = value - chance > ERRORS * error + _ROUNDING
    return {"metric": metric, "value": value, "chance": chance, "error": error, "above": above}
