"""Prediction, party side. The box: common/contracts/prediction.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import torch

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.training.cards.card import Card
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Splits
from colonnade.common.aggregation.subject import PREDICTION, subject
from colonnade.common.contracts.prediction import Ask, Averaged, Decisions, Output, decides, refuse_own, summed, width
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError


async def answer(ctx: ClientContext, server: Link) -> None:
    """Releases the outputs of this party's part of the joint model for the requested rows, round after round.

    Raises:
        ContractError: a requested row does not exist, or is repeated.
        BudgetSpent: the privacy budget does not pay for another response.
    """
    if decides(ctx.federation):
        await _decide(ctx, server, SPLITS[ctx.federation.protocol.name](ctx, ctx.federation.protocol))
        return
    local = LOCAL[ctx.federation.protocol.name](ctx, ctx.federation.protocol)
    local.eval()
    own = await terms(
        ctx, server, "blinded" if summed(ctx.federation) else "clear", Output, lambda t, _part, _block, o: Output(t, o),
        trains=False,
    )  # fmt: skip
    asked = b""  # hash of all requests of the session: masks cancel only if all parties were sent the same ones
    async for t in _requests(ctx, server):
        ask = await server.recv(Ask, t)
        if ask is None:  # the server went on without us: follow it
            continue
        refuse_unknown(ask, ctx.features.shape[0])
        asked = subject(PREDICTION, ask.rows, t, int(ask.own), before=asked)
        if not await own.begin(t, asked):
            continue
        with torch.no_grad():
            o = local.of_rows(ctx.features, ask.rows)  # (rows, width)
        await own.train(t, ctx.release(o, evaluation=True, rows=ask.rows))  # 2
        ctx.scored(ask.rows)
        if isinstance(local, Card):
            ctx.explain(ask.rows, local.reason_lines(ask.rows))
        if ask.own:
            await _predict(ctx, server, ask)  # 4


async def _decide(ctx: ClientContext, server: Link, splits: Splits) -> None:
    """Releases on which side of its splits the requested rows are."""
    async for t in _requests(ctx, server):
        ask = await server.recv(Ask, t)
        if ask is None:  # the server went on without us: follow it
            continue
        refuse_unknown(ask, ctx.features.shape[0])
        await server.send(Decisions(t, ctx.release(splits.of_rows(ask.rows), evaluation=True, rows=ask.rows)))  # 2
        ctx.scored(ask.rows)


async def _requests(ctx: ClientContext, server: Link) -> AsyncIterator[int]:
    """The rounds; between two of them the party is idle."""
    ctx.idle.set()
    async for t in server.rounds(after=ctx.round):
        ctx.idle.clear()
        yield t
        ctx.idle.set()


async def _predict(ctx: ClientContext, server: Link, ask: Ask) -> None:
    """Predicts with the party's own head from the average over all parties; the result stays at the party."""
    refuse_own(ctx.federation)
    e = await server.recv(Averaged, ask.round, rows=len(ask.rows), width=width(ctx.federation))
    if e is None:
        return
    head = ctx.head(width(ctx.federation))
    head.eval()
    with torch.no_grad():
        r = head(e.e.to(ctx.device))  # (rows, classes)
    ctx.keep(ask.rows, r.softmax(1).cpu())


def refuse_unknown(ask: Ask, there: int) -> None:
    rows = ask.rows
    if bool(((rows < 0) | (rows >= there)).any()):
        wrong = next(int(row) for row in rows if not 0 <= row < there)
        raise ContractError(SERVER, "Ask", "rows", f"positions of 0 to {there - 1}", str(wrong))
    if again := len(rows) - len(torch.unique(rows)):
        raise ContractError(SERVER, "Ask", "rows", "every row once", f"{again} of them again")
