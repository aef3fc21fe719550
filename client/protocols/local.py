"""The active party alone, party side. The box: common/protocols/local.py."""

from __future__ import annotations

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.local import Config


async def participate(ctx: ClientContext, server: Link, _cfg: Config) -> None:
    """Follows the rounds and sends nothing."""
    async for _ in server.rounds(after=ctx.round):
        pass
