"""The reference on joined data, party side. The box: common/protocols/centralized.py."""

from __future__ import annotations

import math
from functools import partial

from torch import nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.common.conversation.conversation import Link
from colonnade.common.errors import ConfigError
from colonnade.common.protocols.centralized import Config, Evaluation, Features


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends its raw columns, and receives nothing."""
    if (columns := math.prod(ctx.features.shape[1:])) > cfg.columns:
        raise ConfigError(
            f"{ctx.name} has {columns} columns, federation.protocol.columns allows {cfg.columns}",
            hint="raise federation.protocol.columns at every member",
        )
    flat = nn.Flatten()
    async for t in server.rounds(after=ctx.round):
        await server.send(Features(t, ctx.release(flat(ctx.features[ctx.schedule.batch(t)]))))  # 1
        await evaluate(ctx, server, t, flat, partial(Evaluation, t))
