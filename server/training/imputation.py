"""Imputation of embeddings for parties that did not respond in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from colonnade.server.training.context import ServerContext

How = Literal["zero", "last", "skip"]


LAST, SENT = "last embeddings", "sent embeddings"
"""Names in the state: every party's last embeddings by row, and which rows it has sent at all."""


def sent(ctx: ServerContext, last: Tensor) -> Tensor:
    """The state's mask of embeddings that were sent, Boolean (parties, rows).

    Runs of 0.2.0 kept none: of theirs, the rows that are not zero throughout, as they were read then.
    """
    return ctx.state.keep(SENT, lambda: last.any(dim=2))


class StandIn:
    """A round's embeddings, or logits, in roster order; missing ones are imputed.

    Args:
        how: zero: zeros. last: the party's last embedding of the same rows, zeros if it sent none; the state
            keeps a copy of every party's embeddings. skip: the round is left out, except the last, which is evaluated.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...], width: int, how: How) -> None:
        self._ctx, self._parties, self.width, self._how = ctx, parties, width, how
        shape = (len(parties), len(ctx.labels), width)
        self._last = ctx.state.keep(LAST, lambda: torch.zeros(shape)) if how == "last" else None
        self._sent = None if self._last is None else sent(ctx, self._last)

    def zeros(self, responses: Mapping[str, Tensor], rows: int) -> list[Tensor]:
        """h_1 .. h_M, each float32 (rows, width); zeros for missing parties."""
        nothing = torch.zeros(rows, self.width)
        return [responses.get(party, nothing) for party in self._parties]

    def fill(self, responses: Mapping[str, Tensor], batch: Tensor, round: int) -> list[Tensor] | None:
        """h_1 .. h_M of a training batch (int64), each float32 (rows, width); None if the round is left out."""
        complete = len(responses) == len(self._ctx.schedule.participants(round))
        if not responses or (self._how == "skip" and not complete and round < self._ctx.schedule.rounds):
            return None
        if self._last is None or self._sent is None:
            return self.zeros(responses, len(batch))
        for index, party in enumerate(self._parties):
            if party in responses:
                self._last[index, batch] = responses[party]
                self._sent[index, batch] = True
        return list(self._last[:, batch])
