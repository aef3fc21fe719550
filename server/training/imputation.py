"""What stands in for the embeddings of a party that did not answer in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from colonnade.server.training.context import ServerContext

How = Literal["zero", "last", "skip"]


class StandIn:
    """A round's embeddings in the roster's order, with something in the place of those that are missing.

    Args:
        ctx: of the server's half; `last` keeps a copy of every party's embeddings in its state.
        parties: in the cohort's order.
        width: of an embedding, or of logits.
        how: zero; last: what the party last sent for the same rows, zeros where that never was; skip:
            nothing, the round is left out (not the last one, which is evaluated).

    Attributes:
        width: as given.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...], width: int, how: How) -> None:
        self._ctx, self._parties, self.width, self._how = ctx, parties, width, how
        shape = (len(parties), len(ctx.labels), width)
        self._last = ctx.state.keep("last embeddings", lambda: torch.zeros(shape)) if how == "last" else None

    def zeros(self, answers: Mapping[str, Tensor], rows: int) -> list[Tensor]:
        """h_1 .. h_M, each float32 (rows, width); zeros for who is missing."""
        nothing = torch.zeros(rows, self.width)
        return [answers.get(party, nothing) for party in self._parties]

    def fill(self, answers: Mapping[str, Tensor], batch: Tensor, round: int) -> list[Tensor] | None:
        """h_1 .. h_M of a training batch, each float32 (rows, width), or None if the round is to be left out.

        Args:
            answers: what each party sent, (rows, width).
            batch: row numbers, int64 (rows,).
            round: its number.
        """
        everyone = len(answers) == len(self._ctx.schedule.participants(round))
        if not answers or (self._how == "skip" and not everyone and round < self._ctx.schedule.rounds):
            return None
        if self._last is None:
            return self.zeros(answers, len(batch))
        for index, party in enumerate(self._parties):
            if party in answers:
                self._last[index, batch] = answers[party]
        return list(self._last[:, batch])
