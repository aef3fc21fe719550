"""The active party alone, server side. The box: common/protocols/local.py."""

from __future__ import annotations

import asyncio

from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.protocols.local import Config
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.fusion.active import active_party


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains the server's own model on the server's own columns."""
    own, columns, loss = active_party(ctx, cfg.embedding), ctx.columns, ctx.loss
    assert columns is not None  # required by the contract

    def predict(block: Tensor) -> Tensor:
        with own.evaluation() as model:
            return model.predict(model.embed(columns[block]))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        r = own.predict(own.embed(columns[batch]))  # 1, (rows, classes)
        y = ctx.targets(batch, r)
        own.learn(loss.gradient(r, y) / len(batch))  # 2
        ctx.record(t, loss.value(r, y).mean().item(), Responses({}, missing=()))
        evaluate_alone(ctx, t, predict)
        await asyncio.sleep(0)  # no message is awaited: let the connections use the event loop
