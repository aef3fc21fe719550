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
from colonnade.common.run.phases import evaluation
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import collect_block
from colonnade.server.training.imputation import StandIn


@dataclass(frozen=True)
class Found:
    """Result of a round, or of a block of an evaluation.

    Args:
        total: the sum, float32 (rows, width), on the CPU; None if there is none.
        parts: every party's values, in roster order; None where they are hidden.
    """

    total: Tensor | None
    answers: Responses[Message]
    parts: list[Tensor] | None = None


class Sums(Protocol):
    async def training(self, round: int, batch: Tensor) -> Found:
        """Sums every party's values of a batch, row numbers int64 (rows,). A round without a sum is left out."""

    async def more(self, round: int, stage: int, rows: int, among: Collection[str]) -> Found:
        """Sums values of another stage of a round's training, from 1, over the parties that took part in it."""

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Sums the values of a block of validation or test rows, over the parties that took part in the round."""


@evaluation
async def evaluate_sums(
    ctx: ServerContext, sums: Sums, round: int, logits: Callable[[Tensor, int], Tensor], among: Collection[str]
) -> None:
    """Evaluates the parts due after a round, as server/training/evaluation.py does.

    If a block has no sum the evaluation is given up: the same rows summed over other parties would reveal values.

    Args:
        logits: (sum, number of responses) -> the joint model's logits, float32 (rows, classes).
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
    """Sums of values sent in the clear; `present` imputes missing parties.

    Args:
        training, evaluation: the protocol's messages; the latter has `part` and `block`.
        value: extracts a message's values, float32 (rows, width).
        dims: the messages' dimensions other than `rows`.
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
        """Sums over the parties sampled for the round."""
        kind, among = self._kinds[0], self._ctx.schedule.participants(round)
        responses = await self._clients.collect(
            kind, round, self._ctx.quorum, among=among, stale=None, rows=len(batch), **self._dims
        )
        parts = self._present.fill(self._values(responses), batch, round)
        return Found(None if parts is None else torch.stack(parts).sum(0), responses, parts)

    async def more(self, round: int, stage: int, rows: int, among: Collection[str]) -> Found:  # noqa: ARG002  # in step
        """Sums over all that answer in time; there is none without one of them."""
        responses = await self._clients.collect(
            self._kinds[1], round, self._ctx.quorum, among=among, stale=None, rows=rows, **self._dims
        )
        parts = list(self._values(responses).values())
        return Found(torch.stack(parts).sum(0) if len(parts) == len(among) else None, responses, parts)

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Sums a block; missing parties count as zeros."""
        kind, place = self._kinds[1], (part, number)
        responses = await collect_block(self._ctx, self._clients, kind, round, place, among, rows=rows, **self._dims)
        parts = self._present.zeros(self._values(responses), rows)
        return Found(torch.stack(parts).sum(0), responses, parts)

    def _values(self, responses: Responses[Message]) -> dict[str, Tensor]:
        return {party: self._value(response) for party, response in responses.items()}
