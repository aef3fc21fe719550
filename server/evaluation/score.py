"""Metrics of logits, block by block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.server.evaluation.quality import Classes, Probabilities, describe


class Score:
    """Accuracy and mean cross-entropy, without class weights.

    Attributes:
        rows: number of rows added.
    """

    def __init__(self) -> None:
        self._hits = self._loss = 0.0
        self.rows = 0
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []

    @torch.no_grad()
    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Adds some rows: logits (rows, classes), their classes int64 (rows,)."""
        self._hits += (logits.argmax(1) == labels).sum().item()
        self._loss += functional.cross_entropy(logits, labels, reduction="sum").item()
        self._logits.append(logits.detach().cpu())
        self._labels.append(labels.cpu())
        self.rows += len(labels)

    @property
    def metrics(self) -> dict[str, float]:
        """`accuracy` and `loss` of all rows, at least one."""
        return {"accuracy": self._hits / self.rows, "loss": self._loss / self.rows}

    def closer(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Further metrics by name, and details too large for a metric: `server.evaluation.quality.describe`."""
        return describe(*self.arrays())

    def arrays(self) -> tuple[Probabilities, Classes]:
        """Probabilities of all rows, float64 (rows, classes), and their classes, int64 (rows,)."""
        probabilities = torch.cat(self._logits).double().softmax(dim=1)
        return probabilities.numpy(), torch.cat(self._labels).numpy()
