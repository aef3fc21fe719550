"""Quality of class probabilities beyond accuracy: ranking, calibration, confusion.

Values equal scikit-learn's (a test compares them), whose argument checks would take longer than a round of small
batches, and whose import takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from colonnade.server.training.metrics import chance, gains
from colonnade.server.training.metrics.calibration import Bools, Floats

BINS = 10  # bins of equal width in a reliability curve

Probabilities = NDArray[np.float64]
Classes = NDArray[np.int64]
_Ranking = Callable[[Probabilities, NDArray[np.bool_]], float]


def describe(probabilities: Probabilities, labels: Classes) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics by name, and details too large for a metric.

    With two classes `auc`, `average_precision` and `brier` refer to the second; with more, `auc` and
    `average_precision` are means over every class against the rest, without classes that have none or all of these
    rows, and `brier` is the sum over classes. `ks`, `lift` and `gain` refer to the second of two classes, ranked by
    its probability.

    Args:
        probabilities: float64 (rows, classes), each row sums to 1.
        labels: class numbers, int64 (rows,), at least one.

    Returns:
        `auc`, `average_precision`, `ks`, `lift`, `gain` (where defined), `balanced_accuracy`, `f1` (macro),
        `log_loss`, `brier` and `ece`; and `confusion` (rows by true, then predicted class), `reliability` (bins),
        `gains` (a curve, two classes) and `chance` (a verdict). Both are empty if a probability is not finite.
    """
    metrics = measure(probabilities, labels, _METRICS)
    if not metrics:
        return {}, {}
    details: dict[str, Any] = {
        "confusion": _confusion(probabilities, labels).tolist(),
        "reliability": _bins(probabilities, labels),
        "chance": chance.of_classes(probabilities, labels, metrics.get("auc")),
    }
    if "gain" in metrics:
        details["gains"] = gains.curve(probabilities[:, 1], labels == 1)
    return metrics, details


def measure(probabilities: Probabilities, labels: Classes, names: Collection[str]) -> dict[str, float]:
    """Some metrics of `describe`, without undefined ones; empty if a probability is not finite."""
    if not np.isfinite(probabilities).all():
        return {}
    found = {name: _METRICS[name](probabilities, labels) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _against_the_rest(score: _Ranking, probabilities: Probabilities, labels: Classes) -> float | None:
    """Mean over the classes with both positive and negative rows; None if there is no such class."""
    wanted = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    sides = {number: labels == number for number in wanted}
    found = [score(probabilities[:, number], own) for number, own in sides.items() if 0 < own.sum() < len(labels)]
    return float(np.mean(found)) if found else None


def _balanced_accuracy(probabilities: Probabilities, labels: Classes) -> float:
    """Mean recall over the classes of these rows."""
    right = probabilities.argmax(axis=1) == labels
    return float(np.mean([right[labels == number].mean() for number in np.unique(labels)]))


def _f1(probabilities: Probabilities, labels: Classes) -> float:
    """Mean over the classes with true or predicted rows."""
    confusion = _confusion(probabilities, labels)
    either = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float((2 * confusion.diagonal()[either > 0] / either[either > 0]).mean())


def _confusion(probabilities: Probabilities, labels: Classes) -> Classes:
    """Number of rows by true, then predicted class."""
    classes = probabilities.shape[1]
    cells = labels * classes + probabilities.argmax(axis=1)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def _log_loss(probabilities: Probabilities, labels: Classes) -> float:
    of_label = probabilities[np.arange(len(labels)), labels].clip(np.finfo(np.float64).tiny)
    return float(-np.log(of_label).mean())


def _brier(probabilities: Probabilities, labels: Classes) -> float:
    wrong = probabilities.copy()
    wrong[np.arange(len(labels)), labels] -= 1.0
    squares = np.square(wrong)
    return float((squares[:, 1] if squares.shape[1] == 2 else squares.sum(axis=1)).mean())


def _ece(probabilities: Probabilities, labels: Classes) -> float:
    bins = _bins(probabilities, labels)
    return float(sum(each["rows"] * abs(each["confidence"] - each["share"]) for each in bins) / len(labels))


def _ranked(of: _Ranking) -> Callable[[Probabilities, Classes], float | None]:
    """A metric of the second of two classes; None for rows of a single class, or for more classes."""

    def metric(probabilities: Probabilities, labels: Classes) -> float | None:
        positive = labels == 1
        both = probabilities.shape[1] == 2 and 0 < positive.sum() < len(labels)
        return of(probabilities[:, 1], positive) if both else None

    return metric


def _lift(scores: Probabilities, positive: NDArray[np.bool_]) -> float:
    return gains.gain(scores, positive) / gains.TOP


_METRICS: dict[str, Callable[[Probabilities, Classes], float | None]] = {
    "auc": partial(_against_the_rest, gains.auc),
    "average_precision": partial(_against_the_rest, gains.average_precision),
    "balanced_accuracy": _balanced_accuracy,
    "f1": _f1,
    "log_loss": _log_loss,
    "brier": _brier,
    "ece": _ece,
    "ks": _ranked(gains.ks),
    "lift": _ranked(_lift),
    "gain": _ranked(gains.gain),
}


def _bins(probabilities: Probabilities, labels: Classes) -> list[dict[str, Any]]:
    """Non-empty bins of confidence: bounds, rows, mean confidence, and share of true rows.

    Confidence is the second of two classes' probability; of more classes, that of the most likely one.
    """
    if probabilities.shape[1] == 2:
        confidence, true = probabilities[:, 1], labels == 1
    else:
        confidence, true = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    number = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    found = []
    for each in np.unique(number):
        here = number == each
        found.append({
            "from": float(each / BINS), "to": float((each + 1) / BINS), "rows": int(here.sum()),
            "confidence": float(confidence[here].mean()), "share": float(true[here].mean()),
        })  # fmt: skip
    return found


def margins(logits: Tensor) -> Floats:
    """Log-odds of the second of two classes, float64 (rows,), from logits (rows, 2)."""
    found: Floats = (logits[:, 1].double() - logits[:, 0].double()).cpu().numpy()
    return found


class Score:
    """Accuracy and mean cross-entropy, without class weights.

    `commonest` is the most frequent class of the training rows, for the baseline; None for no baseline.
    """

    def __init__(self, commonest: int | None = None) -> None:
        self._commonest = commonest
        self._hits = self._loss = 0.0
        self.rows = 0
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []

    @torch.no_grad()
    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Adds rows: logits (rows, classes), and classes int64 (rows,)."""
        self._hits += (logits.argmax(1) == labels).sum().item()
        self._loss += functional.cross_entropy(logits, labels, reduction="sum").item()
        self._logits.append(logits.detach().cpu())
        self._labels.append(labels.cpu())
        self.rows += len(labels)

    @property
    def metrics(self) -> dict[str, float]:
        """`accuracy` and `loss` of all rows, at least one."""
        return {"accuracy": self._hits / self.rows, "loss": self._loss / self.rows}

    def some(self, names: Collection[str]) -> dict[str, float]:
        """Some of the further metrics, without undefined ones."""
        return measure(*self.arrays(), names) if names else {}

    def closer(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Further metrics, and details too large for a metric: see `describe`.

        `baseline_accuracy` is the accuracy of always predicting the training rows' most frequent class.
        """
        probabilities, labels = self.arrays()
        metrics, details = describe(probabilities, labels)
        if self._commonest is not None:
            metrics["baseline_accuracy"] = float((labels == self._commonest).mean())
        return metrics, details or {"chance": dict(chance.DIVERGED)}

    def errors(self) -> dict[str, float]:
        return chance.errors_of_classes(*self.arrays())

    @property
    def logits(self) -> Tensor:
        """Logits of all rows, (rows, classes)."""
        return torch.cat(self._logits)

    def margins(self) -> tuple[Floats, Bools]:
        """With two classes: log-odds of the second, float64 (rows,), and True for rows of it."""
        return margins(self.logits), torch.cat(self._labels).numpy() == 1

    def arrays(self) -> tuple[Probabilities, Classes]:
        """Probabilities of all rows, float64 (rows, classes), and their classes, int64 (rows,)."""
        probabilities = self.logits.double().softmax(dim=1)
        return probabilities.numpy(), torch.cat(self._labels).numpy()
