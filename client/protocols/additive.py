"""Additive models, party side. The box: common/protocols/additive.py."""

from __future__ import annotations

import torch

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.bins import binned
from colonnade.client.training.context import ClientContext
from colonnade.client.training.shapes import Growth, PairBins, ShapeBins, Shapes, ShapeSum
from colonnade.client.training.sums import OwnSums
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.additive import Change, Config, Counted


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Receives the sums over its bins, and sends the changes of the scores by its shape functions."""
    bins, width, place = _bins(ctx, cfg), scores_of(ctx.federation), ctx.federation.names.index(ctx.name)
    growth, shapes = Growth(ctx, bins, cfg), Shapes(ctx, bins.total, width)
    asked = OwnSums(ctx, server, bins.one_hot(ctx.schedule.partition.train), encrypted=cfg.gradients == "encrypted")
    vectors = ctx.answers("vectors", ctx.schedule.rounds * 2 * width)
    own = await terms(ctx, server, cfg.aggregate, Change, lambda t, _part, _block, d: Change(t, d))
    rows = torch.arange(len(bins.codes))

    async def settle(t: int) -> None:
        if (counted := await server.recv(Counted, t, parties=len(ctx.federation.names))) is not None:
            shapes.settle(int(counted.rounds[place]))

    async for t in server.rounds(after=ctx.round):
        if not await asked.open(t):  # 1, 2
            continue
        if not shapes.settled:  # we were late: this round goes on without us
            await settle(t)
            continue
        vectors.take(2 * width)
        if (found := await asked.sums(t, 2 * width)) is None:  # 3 to 5
            continue
        sums, rate = found
        step = growth.step(shapes.values.numpy(), sums[:, :width], sums[:, width:], rate)  # 6
        if not await own.begin(t, subject(TRAINING, rows)):
            continue
        shapes.take(t, step)
        change = torch.from_numpy(bins.scores(step, rows)).float()
        await own.train(t, ctx.release(change, rows=rows))  # 7
        await settle(t)  # 8


def local(ctx: ClientContext, cfg: Config) -> ShapeSum:
    """The shape functions of the state."""
    bins = _bins(ctx, cfg)
    return ShapeSum(ctx, bins, Shapes(ctx, bins.total, scores_of(ctx.federation)).values.numpy())


def _bins(ctx: ClientContext, cfg: Config) -> ShapeBins:
    table = binned(ctx, most=cfg.bins, least=cfg.least)
    return ShapeBins(table, PairBins(ctx, table, cfg.least) if cfg.pairs and len(table.columns) > 1 else None)
