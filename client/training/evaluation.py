"""Evaluation, party side: embeddings of validation and test rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from torch import nn

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.outgoing import Released
from colonnade.common.run.phases import evaluation


@evaluation
async def evaluate(
    ctx: ClientContext,
    server: Link,
    round: int,
    model: nn.Module,
    answer: Callable[[str, int, Released], Message],
) -> None:
    """Sends the embeddings of the parts that are due after a round; `answer` makes the message from part, block and
    released rows.
    """
    parts = ctx.schedule.evaluations(round)
    if not parts:
        return
    model.eval()
    for part in parts:
        for number, block in enumerate(ctx.schedule.blocks(part)):
            embeddings = ctx.outputs(model, ctx.features[block])
            await server.send(answer(part, number, ctx.release(embeddings, evaluation=True, rows=block)))
            await asyncio.sleep(0)  # lets the block leave now: the server waits for the first
    model.train()
