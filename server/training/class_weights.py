"""Class-weighted losses: w_y ℓ(z, y)."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.models.losses import CrossEntropy


class WeightedCrossEntropy:
    """Softmax cross-entropy times the weight of the row's class.

    A batch's mean is over its rows, not over their weights, so a row's share of a gradient depends on its own class
    alone in every protocol.

    Args:
        weights: w, positive, one per class, (classes,).
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights, self._plain = weights, CrossEntropy()

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`w_y (logsumexp(z_j) − z_jy)`, shape (b,), of class numbers int64 (b,)."""
        return self._of(targets, logits) * self._plain.value(logits, targets)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`w_y (softmax(z_j) − y_j)`, shape (b, c)."""
        return self._of(targets, logits).unsqueeze(-1) * self._plain.gradient(logits, targets)

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """The minimiser of w ℓ + ρ/2 ‖z − centre‖², which is that of ℓ under the penalty ρ/w: class by class."""
        found = torch.empty_like(centre)
        for number, weight in enumerate(self.weights.tolist()):
            rows = targets == number
            if bool(rows.any()):
                found[rows] = self._plain.proximal(centre[rows], targets[rows], rho / weight)
        return found

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean, a scalar that can be differentiated row by row."""
        each = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return (self._of(targets, logits) * each).mean()

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """The unweighted loss's change, float64 (b, q), times w_y."""
        return self._of(targets, logits).double().unsqueeze(-1) * self._plain.change(step, logits, targets)

    def _of(self, targets: Tensor, logits: Tensor) -> Tensor:
        return self.weights.to(logits)[targets]


def balanced(labels: Tensor, classes: int) -> Tensor:
    """n / (C n_c) of every class, float64 (classes,): equal weight per class, 1 per row on average if none is empty.

    A class without rows gets weight 1, which is never used.
    """
    counts = torch.bincount(labels.cpu(), minlength=classes).to(torch.float64)
    return torch.where(counts > 0, len(labels) / (classes * counts.clamp_min(1)), 1.0)
