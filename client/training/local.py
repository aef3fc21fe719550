"""A party's part of the joint model, and reasons for a score.

Reasons are columns' contributions, compared with the mean or the best. In a sum the columns' Shapley values are exact
without sampling: compared with the mean over the training rows, a column's is its contribution at the row less its mean
contribution (Lundberg and Lee 2017, corollary 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.common.data.columns.scale import Columns
from colonnade.common.models.heads import xavier
from colonnade.common.models.optimiser import build_optimiser, stepper


class WithWidth(Protocol):
    @property
    def embedding(self) -> int:
        """Width of a party's embedding."""


@runtime_checkable
class Splits(Protocol):
    """A party's part of a forest."""

    def of_rows(self, rows: Tensor) -> Tensor:
        """Row numbers, int64 (rows,) -> the rows' sides at each split, packed bits, uint8 (rows, bytes)."""

    def described(self) -> Sequence[tuple[str, dict[str, Any], str]]:
        """For every split: the column's name, its left side as JSON (`Binning.record`) and in words."""


class Local(nn.Module):
    """Rows -> the party's outputs: embeddings theta_k(x), or logits if it has its own head W_k."""

    def __init__(self, model: nn.Module, head: OwnHead | None = None) -> None:
        super().__init__()
        self.model, self.head = model, head

    @property
    def weight(self) -> Tensor | None:
        return None if self.head is None else self.head.weight.detach()

    def record(self) -> dict[str, Any]:
        """The part in JSON for readers; empty for a network."""
        return {}

    def explained(self, ctx: ClientContext) -> dict[str, Any]:  # noqa: ARG002  # a network's columns are no parts of it
        """Explanation of each column for the party alone, by name, the most important first, as JSON; {} for none."""
        return {}

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> (rows, width), or (rows, classes) with a head."""
        return self.answer(self.model(x))

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:
        """Outputs for rows of the party's table, int64 (rows,)."""
        found: Tensor = self(features[rows])
        return found

    def answer(self, h: Tensor) -> Tensor:
        return h if self.head is None else self.head(h)


def bottom(ctx: ClientContext, cfg: WithWidth) -> Local:
    return Local(ctx.model(cfg.embedding))


def headed(ctx: ClientContext, cfg: WithWidth) -> tuple[Local, OwnHead]:
    head = OwnHead(ctx, cfg.embedding)
    return Local(ctx.model(cfg.embedding), head), head


class OwnHead(nn.Module):
    """W_k, (rows, width) -> (rows, classes), and its optimiser, both in the party-side state; embeddings stay at the
    party.
    """

    def __init__(self, ctx: ClientContext, width: int) -> None:
        super().__init__()

        def make() -> nn.Parameter:
            start = ctx.draws.generator("head")
            return nn.Parameter(xavier(width, ctx.federation.outputs, start).to(ctx.device))

        self.weight = ctx.state.keep("head", make)
        config = ctx.config.head_optimiser
        self.optimiser = ctx.state.keep("head optimiser", lambda: build_optimiser(config, [self.weight]))
        self.step = stepper(self.optimiser)

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.weight


Floats = NDArray[np.float64]
Reason = tuple[str, float]
Reference = Literal["mean", "best"]

REASONS = 4


def lowest(parts: Floats, names: Sequence[str], most: int) -> list[list[Reason]]:
    """For each row at most `most` columns that lower its score, with their contributions, lowest first.

    `parts` are the columns' contributions, (rows, columns).
    """
    order = np.argsort(parts, axis=1, kind="stable")[:, :most]
    return [
        [(names[place], float(line[place])) for place in places if line[place] < 0]
        for line, places in zip(parts, order, strict=True)
    ]
