"""Syn-ZOO-VFL, party side. The box: common/protocols/syn_zoo_vfl.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.client.training.pairs import Follower
from colonnade.common.contracts.pairs import Evaluation
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.syn_zoo_vfl import Config

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends a pair every round and follows the number that comes back."""
    party = Follower(ctx, server, cfg)
    async for t in server.rounds(after=ctx.round):
        if await party.exchange(t, t, until=t):
            await evaluate(ctx, server, t, party.model, partial(Evaluation, t))
