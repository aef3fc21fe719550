"""The server's part of an additive model: where scores start."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.common.contracts.boosting import scores_of
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.gradients import TreeObjective


class ScoreSum:
    """The sum of the parties' scores and of where they start.

    Attributes:
        start: float64 (scores,).
    """

    def __init__(self, ctx: ServerContext) -> None:
        self._objective = TreeObjective(ctx)
        self.start = ctx.state.keep("start", lambda: torch.zeros(scores_of(ctx.federation), dtype=torch.float64))

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """Scores of every party, float32 (rows, scores) each -> logits (rows, classes)."""
        return self.of_sum(torch.stack(list(parts)).double().sum(0))

    def of_sum(self, total: Tensor) -> Tensor:
        """Their sum, float32 (rows, scores) -> logits (rows, classes)."""
        return self._objective.logits((self.start + total.cpu().double()).numpy())

    def heads(self) -> None:
        """None: a score has no weights."""
