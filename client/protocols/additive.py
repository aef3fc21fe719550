"""Additive models, party side. The box: common/protocols/additive.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.client.training.trees.bins import BinnedTable, binned
from colonnade.client.training.trees.returned import OwnSums
from colonnade.client.training.trees.shapes import Growth, Shapes, scores_by_bin
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.columns.scale import Columns
from colonnade.common.protocols.additive import Change, Config, Counted


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Takes back the sums over its bins, and sends what its shape functions change in the scores."""
    table, width = binned(ctx, most=cfg.bins, least=cfg.least), scores_of(ctx.federation)
    place = ctx.federation.names.index(ctx.name)
    growth, shapes = Growth(ctx, table, cfg), Shapes(ctx, sum(table.counts), width)
    asked = OwnSums(ctx, server, table.one_hot(ctx.schedule.partition.train), encrypted=cfg.gradients == "encrypted")
    vectors = ctx.answers("vectors", ctx.schedule.rounds * 2 * width)
    own = await terms(ctx, server, cfg.aggregate, Change, lambda t, _part, _block, d: Change(t, d))
    rows = torch.arange(len(table.codes))

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
        if (found := await asked.sums(t, 2 * width)) is None:  # 3 to 6
            continue
        sums, rate = found
        step = growth.step(shapes.values.numpy(), sums[:, :width], sums[:, width:], rate)
        if not await own.begin(t, subject(TRAINING, rows)):
            continue
        shapes.take(t, step)
        change = torch.from_numpy(scores_by_bin(table.codes, table.counts, step)).float()
        await own.train(t, ctx.release(change, rows=rows))  # 7
        await settle(t)  # 8


class ShapeSum(Local):
    """Scores by the shape functions: of rows of the party's table, which is not encoded."""

    def __init__(self, table: BinnedTable, values: Tensor) -> None:
        super().__init__(nn.Identity())
        self._table, self._values = table, values.numpy()

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:  # noqa: ARG002  # the interface's
        """Numbers of rows, int64 (rows,) -> float32 (rows, scores)."""
        scores = scores_by_bin(self._table.codes[rows.numpy()], self._table.counts, self._values)
        return torch.from_numpy(scores).float()


def local(ctx: ClientContext, cfg: Config) -> ShapeSum:
    """The shape functions of the state."""
    table = binned(ctx, most=cfg.bins, least=cfg.least)
    return ShapeSum(table, Shapes(ctx, sum(table.counts), scores_of(ctx.federation)).values)
