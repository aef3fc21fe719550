"""Scorecards, party side. The box: common/protocols/scorecard.py."""

from __future__ import annotations

import numpy as np
import torch

from colonnade.client.regression import OwnSteps, share_of, step_terms
from colonnade.client.training.bins import BinnedTable, directions
from colonnade.client.training.card import Card, CardBins, WoeColumns, card_of, refuse_without_library
from colonnade.client.training.context import ClientContext
from colonnade.client.training.shapes import ShapeBins, ShapeSum
from colonnade.client.training.sums import OwnSums
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.protocols.scorecard import Chosen, Config, InformationValues


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Makes bins in the first round; then keeps the coefficients of its columns."""
    refuse_without_library()
    table, bins = card_of(ctx, cfg)
    directions(ctx, table.columns)  # a wrong one is refused before anything is sent
    vectors = ctx.answers("vectors", ctx.schedule.rounds * 2)
    own = await step_terms(ctx, server, cfg)
    counted: OwnSums | None = None
    steps: OwnSteps | None = None
    async for t in server.rounds(after=ctx.round):
        if not bins.chosen:
            counted = counted or OwnSums(ctx, server, table.one_hot(ctx.schedule.partition.train))
            if await counted.open(t):
                vectors.take(1)
                await _fit(ctx, server, cfg, t, (table, bins, counted))
            continue
        steps = steps or OwnSteps(ctx, server, cfg, WoeColumns(ctx, cfg, table, bins), own, vectors)
        await steps.round(t)
    if bins.chosen and (wrong := _card(ctx, cfg, table, bins).wrong):
        ctx.warn(
            f"points fall where the share of goods rises: {', '.join(map(repr, wrong))}; another column tells the same "
            "and more: leave such columns out, or raise federation.protocol.min_iv"
        )


async def _fit(
    ctx: ClientContext, server: Link, cfg: Config, t: int, bins: tuple[BinnedTable, CardBins, OwnSums]
) -> None:
    table, own, counted = bins
    if (found := await counted.sums(t, 1)) is None:  # 1 to 3
        return
    own.fit(ctx, cfg, table, found[0][:, 0])
    said = [own.evidence(table)[number].iv for number in own.kept] if ctx.config.policy.share_iv and cfg.top else []
    await server.send(InformationValues(t, ctx.release(torch.tensor(said, dtype=torch.float64))))  # 4
    chosen = await server.recv(Chosen, t, columns=len(said))  # 5
    if chosen is None:
        return
    stays = chosen.stays.bool().numpy() if said else own.kept >= 0
    if not stays.any():
        raise ContractError(SERVER, "Chosen", "stays", "one column at least", "none")
    own.choose(stays)


def local(ctx: ClientContext, cfg: Config) -> ShapeSum:
    """The points of the state; none before there are bins."""
    table, bins = card_of(ctx, cfg)
    if not bins.chosen:
        return ShapeSum(ctx, ShapeBins(table), np.zeros((sum(table.counts), 1)))
    return _card(ctx, cfg, table, bins)


def _card(ctx: ClientContext, cfg: Config, table: BinnedTable, bins: CardBins) -> Card:
    columns = WoeColumns(ctx, cfg, table, bins)
    return columns.model(columns.coefficients(share_of(ctx, cfg, columns).at))
