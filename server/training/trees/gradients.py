"""Gradients and Hessians of the task's loss, as whole numbers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.server.training.class_weights import WeightedCrossEntropy
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.grower import Gradients
from colonnade.server.training.trees.splits import Floats, Whole


class TreeObjective:
    """Loss of the training rows as a function of the trees' scores, float64 (rows, trees of a round).

    With two classes there is one score, the logit of the second; with more one for each, and in a regression one for
    each target.
    """

    def __init__(self, ctx: ServerContext) -> None:
        self._ctx, self.rows = ctx, ctx.schedule.partition.train.cpu()
        self._classes = ctx.federation.outputs if ctx.scale is None else 0

    def start(self) -> Floats:
        """The scores before the first tree: log odds or log shares of the classes, or means."""
        y = self._targets(torch.zeros(len(self.rows), self._ctx.federation.outputs, device=self._ctx.device))
        weights = self._weights()[:, None]
        mean = ((weights * y).sum(0) / weights.sum()).numpy()
        if not self._classes:
            return np.asarray(mean)
        logs: Floats = np.log(np.clip(mean, 1e-6, 1))
        return logs[1:] - logs[0] if self._classes == 2 else logs

    def logits(self, scores: Floats) -> Tensor:
        """Logits, or scaled targets, float32 (rows, outputs), on the device."""
        if self._classes == 2:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return torch.from_numpy(scores.astype(np.float32)).to(self._ctx.device)

    def loss(self, scores: Floats) -> float:
        """Mean loss of the training rows, of which these are the scores."""
        logits = self.logits(scores)
        return float(self._ctx.loss.mean(logits, self._ctx.targets(self.rows, logits)))

    def gradients(self, scores: Floats, bits: int) -> Gradients:
        """First and second derivatives at the training rows, whose scores these are.

        Args:
            bits: of a number besides its sign.
        """
        y, weights = self._targets(self.logits(scores)).numpy(), self._weights().numpy()[:, None]
        if not self._classes:
            first, second = scores - y, np.ones_like(scores)
        elif self._classes == 2:
            p = 1 / (1 + np.exp(-scores))
            first, second = p - y[:, 1:], p * (1 - p)
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            first, second = p - y, p * (1 - p)
        steps, whole = zip(*(_whole(weights * numbers, bits) for numbers in (first, second)), strict=True)
        return Gradients(self.rows.numpy(), *whole, *steps)

    def _targets(self, logits: Tensor) -> Tensor:
        """Scaled targets, or probabilities of the classes, float64 (rows, outputs)."""
        y = self._ctx.targets(self.rows, logits).cpu()
        if self._classes and y.dim() == 1:
            y = torch.nn.functional.one_hot(y, self._classes)
        return y.double()

    def _weights(self) -> Tensor:
        """Of the rows, float64 (rows,)."""
        if not isinstance(self._ctx.loss, WeightedCrossEntropy):
            return torch.ones(len(self.rows), dtype=torch.float64)
        return self._ctx.loss.weights.double()[self._ctx.labels[self.rows].cpu()]


def _whole(numbers: Floats, bits: int) -> tuple[Floats, Whole]:
    """The step of each column, a power of two, and multiples of it of at most `bits` bits."""
    most = np.abs(numbers).max(axis=0)
    steps: NDArray[np.float64] = np.exp2(np.ceil(np.log2(np.where(most > 0, most, 1.0))) - bits)
    return steps, np.rint(numbers / steps).astype(np.int64)
