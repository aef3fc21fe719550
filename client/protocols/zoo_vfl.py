"""ZOO-VFL, a party's half. The box: common/protocols/zoo_vfl.py."""

from __future__ import annotations

from functools import partial

from client.context import ClientContext
from client.evaluation import evaluate
from client.pairs import Follower
from common.conversation import Link
from common.protocols.pairs import Evaluation
from common.protocols.zoo_vfl import Config


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends pairs and follows the number that comes back, turn after turn."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    party = Follower(ctx, server, cfg)
    turns = ctx.state.keep("turns", lambda: {"done": 0})

    async def exchange(t: int, until: int) -> bool:
        """One turn. False if it is given up, since the server is beyond round `until`: it is done again."""
        done = await party.exchange(t, turns["done"] + 1, until)
        turns["done"] += done
        return done

    async for t in server.rounds(after=ctx.round):
        if ctx.schedule.evaluations(t):  # everyone takes part in the same round
            if await exchange(t, until=t):
                await evaluate(ctx, server, t, party.model, partial(Evaluation, t))
        else:
            while await exchange(t, until=ctx.schedule.evaluated_next(t) - 1) and not server.done_with(t):
                pass
