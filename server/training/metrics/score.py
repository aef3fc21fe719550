"""Classification metrics, accumulated block by block."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.server.training.metrics import chance, errors
from colonnade.server.training.metrics.calibration import Bools, Floats
from colonnade.server.training.metrics.quality import Classes, Probabilities, describe, measure


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
        """Further metrics, and details too large for a metric: see `server.evaluation.quality.describe`.

        `baseline_accuracy` is the accuracy of always predicting the training rows' most frequent class.
        """
        probabilities, labels = self.arrays()
        metrics, details = describe(probabilities, labels)
        if self._commonest is not None:
            metrics["baseline_accuracy"] = float((labels == self._commonest).mean())
        return metrics, details or {"chance": dict(chance.DIVERGED)}

    def errors(self) -> dict[str, float]:
        return errors.of_classes(*self.arrays())

    @property
    def logits(self) -> Tensor:
        """Of all rows, (rows, classes)."""
        return torch.cat(self._logits)

    def margins(self) -> tuple[Floats, Bools]:
        """With two classes: log-odds of the second, float64 (rows,), and True for rows of it."""
        return margins(self.logits), torch.cat(self._labels).numpy() == 1

    def arrays(self) -> tuple[Probabilities, Classes]:
        """Probabilities of all rows, float64 (rows, classes), and their classes, int64 (rows,)."""
        probabilities = self.logits.double().softmax(dim=1)
        return probabilities.numpy(), torch.cat(self._labels).numpy()
