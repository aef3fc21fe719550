"""How good logits are, block by block."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class Score:
    """Accuracy and mean cross-entropy.

    Attributes:
        rows: that were added.
    """

    def __init__(self) -> None:
        self._hits = self._loss = 0.0
        self.rows = 0

    @torch.no_grad()
    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Counts some rows: logits (rows, classes), their classes int64 (rows,)."""
        self._hits += (logits.argmax(1) == labels).sum().item()
        self._loss += functional.cross_entropy(logits, labels, reduction="sum").item()
        self.rows += len(labels)

    @property
    def metrics(self) -> dict[str, float]:
        """`accuracy` and `loss` of all rows, of which there must be some."""
        return {"accuracy": self._hits / self.rows, "loss": self._loss / self.rows}
