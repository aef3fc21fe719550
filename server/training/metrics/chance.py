"""What chance explains: a verdict on a model against one that ignores all columns, and standard errors of metrics.

The errors are estimated from the measured rows: how much other rows may differ by chance.

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

ERRORS = 2.0  # number of standard errors that a value must be above chance

DIVERGED: Mapping[str, Any] = {"metric": "diverged", "above": False}  # verdict on a model with non-finite outputs

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

    Returns `metric`, its `value`, the level of `chance`, the standard `error`, and `above`: True if better than chance.
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

    Both arguments are squared errors on the scale of training, float64 (rows, targets). Returns a verdict as
    `of_classes` does; None for a single row, or if an error is not finite.
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


def errors_of_classes(probabilities: Probabilities, labels: Classes) -> dict[str, float]:
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


def errors_of_numbers(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> dict[str, float]:
    """Standard errors of `rmse`, `mae` and `r2` of a single target, in its own units.

    Arguments are float64 (rows, targets). Empty for several targets, for fewer than two rows, or if a number is not
    finite.
    """
    if true.shape[1] != 1 or len(true) < 2 or not np.isfinite(predicted).all():
        return {}
    with np.errstate(over="ignore", invalid="ignore"):  # squares overflow if the model diverges
        found = _of_errors((predicted - true)[:, 0], true[:, 0])
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _of_errors(wrong: NDArray[np.float64], true: NDArray[np.float64]) -> dict[str, float]:
    squares, spread = np.square(wrong), np.square(true - true.mean())
    found = {"mae": _of_mean(np.abs(wrong))}
    if squares.mean() > 0:
        found["rmse"] = _of_mean(squares) / (2 * math.sqrt(squares.mean()))
    if spread.mean() > 0:
        share = squares.mean() / spread.mean()  # R2 is 1 - share, a ratio of two means
        found["r2"] = _of_mean(squares - share * spread) / float(spread.mean())
    return found


def _of_mean(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _of_auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """DeLong et al. (1988): from each row's share of the other class's rows that it is ranked correctly against."""
    ones, others = np.sort(scores[positive]), np.sort(scores[~positive])
    above = (np.searchsorted(others, ones, "left") + np.searchsorted(others, ones, "right")) / (2 * len(others))
    below = 1 - (np.searchsorted(ones, others, "left") + np.searchsorted(ones, others, "right")) / (2 * len(ones))
    return math.sqrt(above.var(ddof=1) / len(ones) + below.var(ddof=1) / len(others))
