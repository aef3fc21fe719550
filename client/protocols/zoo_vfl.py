"""ZOO-VFL, party side. The box: common/protocols/zoo_vfl.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.client.training.pairs import Follower
from colonnade.client.training.round_modes import follow_rounds
from colonnade.common.contracts.pairs import Evaluation
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.zoo_vfl import Config

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends pairs and follows the number that comes back, turn after turn."""
    party = Follower(ctx, server, cfg)

    async def report(t: int) -> None:
        await evaluate(ctx, server, t, party.model, partial(Evaluation, t))

    await follow_rounds(ctx, server, party.exchange, report, arrivals=True)
