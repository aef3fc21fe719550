"""Quality of class probabilities beyond accuracy: ranking, calibration, confusion.

scikit-learn computes it. It is imported on first use, once at the end of a run: that takes a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 10  # of equal width, in a reliability curve

Probabilities = NDArray[np.float64]
Classes = NDArray[np.int64]


def describe(probabilities: Probabilities, labels: Classes) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics by name, and details that are too large for a metric.

    With two classes `auc`, `average_precision` and `brier` are those of the second; with more, `auc` and
    `average_precision` are the means over every class against the rest, without classes of which these rows have
    none or nothing else, and `brier` is the sum over all classes.

    Args:
        probabilities: float64 (rows, classes), rows of which sum to 1.
        labels: class numbers, int64 (rows,), at least one.

    Returns:
        `auc`, `average_precision` (neither where it is not defined), `f1` (macro), `log_loss`, `brier` and `ece`;
        and `confusion`, rows by true and then predicted class, and `reliability`, a list of bins. Both are empty
        if a probability is not finite.
    """
    from sklearn.metrics import confusion_matrix, f1_score  # noqa: PLC0415

    if not np.isfinite(probabilities).all():
        return {}, {}
    classes, predicted = probabilities.shape[1], probabilities.argmax(axis=1)
    bins = _reliability(*_confidence(probabilities, labels))
    of_label = probabilities[np.arange(len(labels)), labels].clip(np.finfo(np.float64).tiny)
    metrics = {
        **_ranking(probabilities, labels),
        "f1": float(f1_score(labels, predicted, average="macro", zero_division=0.0)),
        "log_loss": float(-np.log(of_label).mean()),
        "brier": _brier(probabilities, labels),
        "ece": sum(each["rows"] * abs(each["confidence"] - each["share"]) for each in bins) / len(labels),
    }
    confusion = confusion_matrix(labels, predicted, labels=np.arange(classes)).tolist()
    return metrics, {"confusion": confusion, "reliability": bins}


def _ranking(probabilities: Probabilities, labels: Classes) -> dict[str, float]:
    """`auc` and `average_precision`, or nothing where no class has rows on both sides."""
    from sklearn.metrics import average_precision_score, roc_auc_score  # noqa: PLC0415

    wanted = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    sides = {number: labels == number for number in wanted}
    sides = {number: own for number, own in sides.items() if 0 < own.sum() < len(labels)}
    if not sides:
        return {}
    return {
        name: float(np.mean([score(own, probabilities[:, number]) for number, own in sides.items()]))
        for name, score in (("auc", roc_auc_score), ("average_precision", average_precision_score))
    }


def _brier(probabilities: Probabilities, labels: Classes) -> float:
    wrong = probabilities.copy()
    wrong[np.arange(len(labels)), labels] -= 1.0
    squares = np.square(wrong)
    return float((squares[:, 1] if squares.shape[1] == 2 else squares.sum(axis=1)).mean())


def _confidence(probabilities: Probabilities, labels: Classes) -> tuple[Probabilities, NDArray[np.bool_]]:
    """With two classes the second's probability and truth; with more, those of the likeliest class."""
    if probabilities.shape[1] == 2:
        return probabilities[:, 1], labels == 1
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


def _reliability(confidence: Probabilities, true: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Non-empty bins: bounds, rows, mean confidence, and the share that is true."""
    number = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    found = []
    for each in np.unique(number):
        here = number == each
        found.append({
            "from": float(each / BINS), "to": float((each + 1) / BINS), "rows": int(here.sum()),
            "confidence": float(confidence[here].mean()), "share": float(true[here].mean()),
        })  # fmt: skip
    return found
