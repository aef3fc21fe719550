"""The active party alone, a party's half. The box: common/protocols/local.py."""

from __future__ import annotations

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link


async def participate(ctx: ClientContext, server: Link) -> None:
    """Follows the rounds and says nothing."""
    async for _ in server.rounds(after=ctx.round):
        pass
