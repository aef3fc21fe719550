"""Class sizes, and the metric that judges a model where they are unequal.

Classes are unequal if the most frequent has more than 1.5 times an equal share of the training rows: with two classes,
more than 75 %. A model that always predicts it then has a high accuracy, so AUC (two classes) or balanced
accuracy (more) is reported first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

UNEQUAL = 1.5
"""Largest share of a class among the training rows, in multiples of an equal share, for classes to count as equal."""


@dataclass(frozen=True)
class ClassBalance:
    """Number of training rows by class, at least one class; estimates where the labels are noisy."""

    counts: Sequence[float]

    @classmethod
    def of(cls, labels: Tensor, classes: int) -> ClassBalance:
        return cls(torch.bincount(labels.cpu(), minlength=classes).tolist())

    @classmethod
    def estimated(cls, counts: Tensor) -> ClassBalance:
        """From estimated counts, float64 (classes,), which noisy labels give at no further epsilon."""
        return cls(counts.clamp_min(0.0).tolist())

    @property
    def commonest(self) -> int:
        """Number of the most frequent class, the first of equals."""
        return max(range(len(self.counts)), key=self.counts.__getitem__)

    @property
    def share(self) -> float:
        """The most frequent class's share of the training rows; 0 if there are none."""
        return self.counts[self.commonest] / total if (total := sum(self.counts)) else 0.0

    @property
    def unequal(self) -> bool:
        return self.share * len(self.counts) > UNEQUAL

    @property
    def measure(self) -> str:
        """The metric that judges a model: `accuracy`; if unequal, `auc` (two classes) or `balanced_accuracy` (more)."""
        if not self.unequal:
            return "accuracy"
        return "auc" if len(self.counts) == 2 else "balanced_accuracy"

    def summary(self) -> dict[str, Any]:
        """`classes` of summary.json."""
        return {
            "commonest": self.commonest, "share": round(self.share, 6), "unequal": self.unequal,
            "measure": self.measure,
        }  # fmt: skip
