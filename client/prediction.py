"""Prediction, party side, and the results that a party keeps on its own disk, unseen by other members.

The box: common/contracts/prediction.py.
"""

from __future__ import annotations

import csv
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.training.card import Card
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Splits
from colonnade.common.aggregation.subject import PREDICTION, subject
from colonnade.common.contracts.prediction import Ask, Averaged, Decisions, Output, decides, refuse_own, summed, width
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError, disk_faults
from colonnade.common.run.files import open_own


async def answer(ctx: ClientContext, server: Link) -> None:
    """Releases the outputs of this party's part of the joint model for the requested rows, round after round.

    Raises ContractError if a requested row does not exist, or is repeated; BudgetSpent if the budget does not pay for
    it.
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
    """Releases the side of the requested rows at its splits."""
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
    if not len(rows):
        raise ContractError(SERVER, "Ask", "rows", "one row or more", "none")
    if bool(((rows < 0) | (rows >= there)).any()):
        wrong = next(int(row) for row in rows if not 0 <= row < there)
        raise ContractError(SERVER, "Ask", "rows", f"positions of 0 to {there - 1}", str(wrong))
    if again := len(rows) - len(torch.unique(rows)):
        raise ContractError(SERVER, "Ask", "rows", "every row once", f"{again} of them again")


@dataclass
class OwnLines:
    """A CSV file, readable by its owner alone, with a line for each predicted row.

    A line begins with the row's id, or its number without ids; `header` names the other fields.
    """

    path: Path
    ids: Sequence[str] | None
    header: Sequence[str]

    def add(self, rows: Tensor, lines: Sequence[Sequence[str]]) -> None:
        """Appends a line for each of rows, int64 (rows,). Raises EnvironmentFault."""
        named = [str(row) if self.ids is None else self.ids[row] for row in rows.tolist()]
        with (
            disk_faults(f"{self.path} cannot be written", "make room"),
            os.fdopen(
                open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", newline="", encoding="utf-8"
            ) as file,
        ):
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(["id", *self.header])
            writer.writerows([name, *line] for name, line in zip(named, lines, strict=True))


@dataclass
class OwnPredictions:
    """The party's own predictions; `ids` as for `OwnLines`. `classes` are names, or a number n for the names 0 to n -
    1.
    """

    path: Path
    ids: Sequence[str] | None
    classes: int | Sequence[str]

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Appends rows, int64 (rows,), with probabilities (rows, classes). Raises EnvironmentFault."""
        names = tuple(map(str, range(self.classes))) if isinstance(self.classes, int) else self.classes
        lines = [
            [names[label], *(f"{value:.6g}" for value in each)]
            for label, each in zip(values.argmax(1).tolist(), values.tolist(), strict=True)
        ]
        OwnLines(self.path, self.ids, ["class", *(f"p_{name}" for name in names)]).add(rows, lines)
