"""Local steps of VIMADMM over rows that the party draws in secret among all rows whose duals it holds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.common.models.backprop import Backprop


class SecretSteps:
    """Eq. 9 by DP-SGD: the party itself draws a step's rows, instead of using the announced batch.

    The newest dual and residual of every training row are kept in the state. A row that has none yet is not drawn; the
    server knows which rows these are, and the probability of the others stays q.
    """

    def __init__(
        self,
        ctx: ClientContext,
        draw: Callable[[Tensor], Tensor],
        bottom: Backprop,
        step: Callable[[], None],
        classes: int,
        rho: float,
    ) -> None:
        self._features, self._draw, self._bottom, self._step, self._rho = ctx.features, draw, bottom, step, rho
        rows = ctx.features.shape[0]
        zeros = lambda: torch.zeros(rows, classes, device=ctx.device)  # noqa: E731
        self._dual, self._residual = ctx.state.keep("held duals", zeros), ctx.state.keep("held residuals", zeros)
        self._held = ctx.state.keep("held", lambda: torch.zeros(rows, dtype=torch.bool))
        self._train = ctx.schedule.partition.train.cpu()

    def take(self, batch: Tensor, dual: Tensor, residual: Tensor) -> None:
        """Keeps the duals and residuals of a batch, (rows, classes) each, in place of earlier ones."""
        self._dual[batch], self._residual[batch] = dual, residual
        self._held[batch.cpu()] = True

    def descend(self, head: Tensor, steps: int) -> None:
        """Takes tau steps, each over its own rows.

        Raises:
            BudgetSpent: the run's steps are all taken.
        """
        held = self._train[self._held[self._train]]
        for _ in range(steps):
            rows = self._draw(held)
            logits = self._bottom.forward(self._features[rows]) @ head
            pull = self._dual[rows] + self._rho * (logits - self._residual[rows])  # per row, not averaged
            self._bottom.backward(pull @ head.t() / max(1, len(rows)))  # of a mean, which NoisyBackprop undoes
            self._step()
