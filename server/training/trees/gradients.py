"""Gradients and Hessians of the task's loss as whole numbers, and the joint model that sums the parties' scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from colonnade.common.contracts.boosting import scores_of
from colonnade.common.data.labels import CountScale
from colonnade.server.training.classes import WeightedCrossEntropy
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.grower import Gradients
from colonnade.server.training.trees.splits import Floats, Whole

_GOLDEN = (math.sqrt(5) - 1) / 2
_FEW = 64.0  # steps
_LARGEST = 60.0  # logarithm of a mean
_STEEPEST = 700.0  # logarithm of odds: beyond it exp overflows
_SMALL = 2.0**-60  # of a derivative


class TreeObjective:
    """Loss of the training rows as a function of the trees' scores, float64 (rows, trees of a round).

    Two classes have one score, the logit of the second; more have one each. A regression has one per target; counts
    have the logarithm of their mean.
    """

    def __init__(self, ctx: ServerContext) -> None:
        self._ctx, self.rows = ctx, ctx.schedule.partition.train.cpu()
        self._counts = isinstance(ctx.scale, CountScale)
        self._classes = ctx.federation.outputs if ctx.scale is None else 0
        self._dither = (np.arange(len(self.rows)) * _GOLDEN % 1)[:, None]

    def start(self) -> Floats:
        """The scores before the first tree: log odds or log shares of the classes, or means."""
        y = self._targets(torch.zeros(len(self.rows), self._ctx.federation.outputs, device=self._ctx.device))
        weights = self._weights()[:, None]
        mean = ((weights * y).sum(0) / weights.sum()).numpy()
        if not self._classes:
            return np.log(np.clip(mean, 1e-6, None)) if self._counts else np.asarray(mean)
        logs: Floats = np.log(np.clip(mean, 1e-6, 1))
        return logs[1:] - logs[0] if self._classes == 2 else logs

    def logits(self, scores: Floats) -> Tensor:
        """Logits, scaled targets, or counts, float32 (rows, outputs), on the device."""
        if self._counts:
            scores = _means(scores)
        if self._classes == 2:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return torch.from_numpy(scores.astype(np.float32)).to(self._ctx.device)

    def loss(self, scores: Floats) -> float:
        """Mean loss of the training rows at these scores, weighted if rows have weights."""
        logits = self.logits(scores)
        targets, weights = self._ctx.targets(self.rows, logits), self._ctx.weights
        if weights is None:
            return float(self._ctx.loss.mean(logits, targets))
        own = weights[self.rows]
        return float((own * self._ctx.loss.value(logits, targets).cpu()).sum() / own.sum())

    def gradients(self, scores: Floats, bits: int, *, fixed: bool = False) -> Gradients:
        """First and second derivatives at the training rows' scores, as whole numbers.

        Args:
            bits: size of a number besides its sign.
            fixed: True for one step in all rounds, that of the largest gradient that classes can have.
        """
        most = float(self._weights().max()) if fixed else 0.0
        steps, whole = zip(*(self._whole(numbers, bits, most) for numbers in self.derivatives(scores)), strict=True)
        return Gradients(self.rows.numpy(), *whole, *steps)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives at the training rows' scores, float64 (rows, scores)."""
        y, weights = self._targets(self.logits(scores)).numpy(), self._weights().numpy()[:, None]
        if self._counts:
            second = _means(scores)
            first = second - y
        elif not self._classes:
            first, second = scores - y, np.ones_like(scores)
        elif self._classes == 2:
            p = 1 / (1 + np.exp(np.minimum(-scores, _STEEPEST)))
            first, second = p - y[:, 1:], p * (1 - p)
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            first, second = p - y, p * (1 - p)
        return weights * first, weights * second

    def _targets(self, logits: Tensor) -> Tensor:
        """Scaled targets, counts, or probabilities of the classes, float64 (rows, outputs)."""
        y = self._ctx.targets(self.rows, logits).cpu()
        if self._classes and y.dim() == 1:
            y = torch.nn.functional.one_hot(y, self._classes)
        return y.double()

    def _weights(self) -> Tensor:
        """Weight of each row times that of its class, float64 (rows,)."""
        weights = torch.ones(len(self.rows), dtype=torch.float64)
        if self._ctx.weights is not None:
            weights = self._ctx.weights[self.rows]
        if isinstance(self._ctx.loss, WeightedCrossEntropy):
            weights = weights * self._ctx.loss.weights.double().cpu()[self._ctx.labels[self.rows].cpu()]
        return weights

    def _whole(self, numbers: Floats, bits: int, largest: float) -> tuple[Floats, Whole]:
        """Steps of the columns, powers of two, and numbers up to `largest` (or each column's largest) as multiples of
        at most `bits` bits.

        Where most numbers are below a few steps, beside some far larger ones, sums would lose precision: fractions are
        then rounded up with a frequency equal to their size.
        """
        steps = steps_of(np.full((1, numbers.shape[1]), largest) if largest else numbers, bits)
        exact = numbers / steps
        rounded = np.where(np.abs(exact).mean(axis=0) < _FEW, self._dither, 0.5)
        return steps, np.floor(exact + rounded).astype(np.int64)


def _means(scores: Floats) -> Floats:
    return np.exp(np.minimum(scores, _LARGEST))


def steps_of(numbers: Floats, bits: int) -> Floats:
    """A power of two per column of numbers, (rows, columns), that fits them into multiples of at most `bits` bits.

    Columns of zeros get the step of small numbers, so no step underflows.
    """
    found: Floats = np.exp2(np.ceil(np.log2(np.maximum(np.abs(numbers).max(axis=0), _SMALL))) - bits)
    return found


class ScoreSum:
    """Sum of the parties' scores and `start`, float64 (scores,)."""

    def __init__(self, ctx: ServerContext) -> None:
        self._objective = TreeObjective(ctx)
        self.start = ctx.state.keep("start", lambda: torch.zeros(scores_of(ctx.federation), dtype=torch.float64))

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """Scores of every party, float32 (rows, scores) each -> logits (rows, classes)."""
        return self.of_sum(torch.stack(list(parts)).double().sum(0))

    def of_sum(self, total: Tensor) -> Tensor:
        """The summed scores, float32 (rows, scores) -> logits (rows, classes)."""
        return self._objective.logits((self.start + total.cpu().double()).numpy())

    def heads(self) -> None:
        """None: scores have no weights."""
