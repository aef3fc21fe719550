"""Sums over the parties for protocols whose server needs no more: in the clear here, masked in masked_sums.py."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.messaging.message import Message
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import collect_block
from colonnade.server.training.imputation import StandIn


@dataclass(frozen=True)
class Found:
    """What a round, or a block of an evaluation, came to.

    Args:
        total: the sum, float32 (rows, width), on the CPU; None if there is none.
        answers: who answered.
        parts: what everyone sent, in the roster's order; None where that is hidden.
    """

    total: Tensor | None
    answers: Responses[Message]
    parts: list[Tensor] | None = None


class Sums(Protocol):
    """The server's part in the sums of a session."""

    async def training(self, round: int, batch: Tensor) -> Found:
        """Over everyone's values of a batch, row numbers int64 (rows,). Without a sum the round is to be left out."""

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Over the values of a block of validation or test rows, of those who were there in the round."""


async def evaluate_sums(
    ctx: ServerContext, sums: Sums, round: int, logits: Callable[[Tensor, int], Tensor], among: Collection[str]
) -> None:
    """Evaluates the parts that are due after a round, as server/training/evaluation.py does.

    If there is no sum of a block the evaluation is given up: the same rows over other parties would tell on them.

    Args:
        logits: (sum, how many answered) -> what the joint model makes of it, float32 (rows, classes).
        among: who was there in the round.
    """
    for part in ctx.schedule.evaluations(round):
        score = ctx.score()
        for number, block in enumerate(ctx.schedule.blocks(part)):
            found = await sums.block(round, part, number, len(block), among)
            if found.total is None:
                ctx.warn(f"round {round}: no evaluation of the {part} rows, since a party did not answer")
                return
            with torch.no_grad():
                score.add(logits(found.total.to(ctx.device), len(found.answers)), ctx.labels[block])
        ctx.evaluated(round, part, score)


class Clear:
    """Sums of what everyone sends in the clear, with something in the place of those who are missing.

    Args:
        ctx, clients: of the half.
        training, evaluation: the protocol's messages; the latter has `part` and `block`.
        value: a message's values, float32 (rows, width).
        present: what stands in for the missing.
        dims: the messages' dimensions beside `rows`.
    """

    def __init__(
        self,
        ctx: ServerContext,
        clients: Cohort,
        training: type[Message],
        evaluation: type[Message],
        value: Callable[[Any], Tensor],
        present: StandIn,
        **dims: int,
    ) -> None:
        self._ctx, self._clients, self._kinds = ctx, clients, (training, evaluation)
        self._value, self._present, self._dims = value, present, dims

    async def training(self, round: int, batch: Tensor) -> Found:
        """Over who is drawn for the round."""
        kind, among = self._kinds[0], self._ctx.schedule.participants(round)
        answers = await self._clients.collect(
            kind, round, self._ctx.quorum, among=among, stale=None, rows=len(batch), **self._dims
        )
        parts = self._present.fill(self._values(answers), batch, round)
        return Found(None if parts is None else torch.stack(parts).sum(0), answers, parts)

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Zeros for who is missing."""
        kind, place = self._kinds[1], (part, number)
        answers = await collect_block(self._ctx, self._clients, kind, round, place, among, rows=rows, **self._dims)
        parts = self._present.zeros(self._values(answers), rows)
        return Found(torch.stack(parts).sum(0), answers, parts)

    def _values(self, answers: Responses[Message]) -> dict[str, Tensor]:
        return {party: self._value(answer) for party, answer in answers.items()}
