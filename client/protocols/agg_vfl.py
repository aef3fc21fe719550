"""Averaged predictions, party side. The box: common/protocols/agg_vfl.py."""

from __future__ import annotations

from functools import partial

from torch import nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import Local
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.two_part import TwoPart
from colonnade.common.protocols.agg_vfl import Config, Evaluation, Gradient, Prediction


def local(ctx: ClientContext, cfg: Config) -> Local:
    """Both networks, in sequence."""
    return Local(nn.Sequential(ctx.model(cfg.embedding), ctx.head(cfg.embedding)))


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends predictions and takes one step on both networks down the gradient that comes back."""
    bottom, head, classes = ctx.model(cfg.embedding), ctx.head(cfg.embedding), ctx.federation.outputs
    own, whole = TwoPart(bottom, head, ctx.optimiser(), ctx.head_optimiser()), nn.Sequential(bottom, head)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        r = own.predict(own.embed(ctx.features[batch]))  # (rows, classes)
        await server.send(Prediction(t, ctx.release(r)))  # 1
        gradient = await server.recv(Gradient, t, rows=len(batch), classes=classes)
        if gradient is None:  # the server went on without us: follow it
            continue
        own.learn(gradient.dr.to(ctx.device))  # 4
        await evaluate(ctx, server, t, whole, partial(Evaluation, t))
