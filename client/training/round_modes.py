"""Synchronous and asynchronous rounds, party side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link


class Turn(Protocol):
    async def __call__(self, t: int, turn: int, until: int) -> bool:
        """Takes one turn. False if the server is beyond round `until`: the turn is repeated.

        Args:
            turn: number of its batch, from 1; the round, in synchronous runs.
            until: the last round in which it waits.
        """


async def follow_rounds(
    ctx: ClientContext,
    server: Link,
    exchange: Turn,
    evaluate: Callable[[int], Awaitable[None]],
    *,
    arrivals: bool,
    begin: Callable[[int], Awaitable[bool]] | None = None,
) -> None:
    """Follows the server's rounds to their end. The number of turns taken is in the party-side state.

    Args:
        arrivals: True for turns until all parties are called for an evaluation, instead of one turn a round.
        begin: returns True if the party takes part in a round.
    """
    turns = ctx.state.keep("turns", lambda: {"done": 0})

    async def once(t: int, until: int) -> bool:
        turn = turns["done"] + 1 if arrivals else t
        done = await exchange(t, turn, until)
        turns["done"] = turn if done else turns["done"]
        return done

    async for t in server.rounds(after=ctx.round):
        if begin is not None and not await begin(t):
            continue
        if not arrivals or ctx.schedule.evaluations(t):  # all parties take part in the same round
            if await once(t, until=t):
                await evaluate(t)
        else:
            while await once(t, until=ctx.schedule.evaluated_next(t) - 1) and not server.done_with(t):
                pass
