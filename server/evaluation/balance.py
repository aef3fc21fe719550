"""Sizes of the classes, and the metric that judges a model where they are unequal.

The only place that says what "unequal" means: the commonest class has more than 1.5 times its equal share of the
training rows, with two classes more than 75 % of them. The accuracy of a model that always says this class is then high
already, so that AUC (two classes) or balanced accuracy (more) is reported first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

UNEQUAL = 1.5
"""Classes are unequal if the commonest has more than so many times its equal share of the training rows."""


@dataclass(frozen=True)
class ClassBalance:
    """Rows of every class among the training rows.

    Args:
        counts: rows by class number, at least one class; estimates where the labels are noisy.
    """

    counts: Sequence[float]

    @classmethod
    def of(cls, labels: Tensor, classes: int) -> ClassBalance:
        """Counts labels, int64 (rows,)."""
        return cls(torch.bincount(labels.cpu(), minlength=classes).tolist())

    @classmethod
    def estimated(cls, counts: Tensor) -> ClassBalance:
        """From estimates of the counts by labels with noise, float64 (classes,), which cost no more epsilon."""
        return cls(counts.clamp_min(0.0).tolist())

    @property
    def commonest(self) -> int:
        """Number of the commonest class, the first of equals."""
        return max(range(len(self.counts)), key=self.counts.__getitem__)

    @property
    def share(self) -> float:
        """Its share of the training rows; 0 if there are none."""
        return self.counts[self.commonest] / total if (total := sum(self.counts)) else 0.0

    @property
    def unequal(self) -> bool:
        """True if the classes are unequal."""
        return self.share * len(self.counts) > UNEQUAL

    @property
    def measure(self) -> str:
        """The metric that judges a model of these classes: `accuracy`, or if they are unequal `auc` (two classes) or
        `balanced_accuracy` (more).
        """
        if not self.unequal:
            return "accuracy"
        return "auc" if len(self.counts) == 2 else "balanced_accuracy"

    def summary(self) -> dict[str, Any]:
        """`classes` of summary.json."""
        return {
            "commonest": self.commonest, "share": round(self.share, 6), "unequal": self.unequal,
            "measure": self.measure,
        }  # fmt: skip
