"""Additive models, party side. The box: common/protocols/additive.py."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.client.training.trees.bins import BinnedTable, binned
from colonnade.client.training.trees.shapes import Growth, Shapes, scores_by_bin
from colonnade.client.training.trees.sums import PartySums
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.data.columns.scale import Columns
from colonnade.common.encryption.linear import Whole
from colonnade.common.encryption.messages import NONCE, PROBE, Masks, ProbeDigest, ProbeSeed, ProbeSums
from colonnade.common.encryption.parameters import PROBES
from colonnade.common.encryption.probe import ProbeAnswer
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.protocols.additive import Change, Config, Counted, MaskedSums, OpenedSums


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Takes back the sums over its bins, and sends what its shape functions change in the scores."""
    table, width = binned(ctx, most=cfg.bins, least=cfg.least), scores_of(ctx.federation)
    place = ctx.federation.names.index(ctx.name)
    growth, shapes = Growth(ctx, table, cfg), Shapes(ctx, sum(table.counts), width)
    asked, vectors = _Asked(ctx, server, table, cfg), ctx.answers("vectors", ctx.schedule.rounds * 2 * width)
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


class _Asked:
    """One session's sums over the party's own bins."""

    def __init__(self, ctx: ClientContext, server: Link, table: BinnedTable, cfg: Config) -> None:
        self._ctx, self._server, self._bins = ctx, server, sum(table.counts)
        self._encrypted = cfg.gradients == "encrypted"
        matrix = table.one_hot(ctx.schedule.partition.train)
        self._sums, self._opened = PartySums(ctx, server, matrix, encrypted=self._encrypted), False

    async def open(self, round: int) -> bool:
        """1 and 2, and the probe; False if the server has moved on."""
        if not self._opened:
            self._opened = await self._sums.open(round, (self._bins,), (0,))
            self._opened = self._opened and (not self._encrypted or await self._probe(round))
        return self._opened

    async def sums(self, round: int, count: int) -> tuple[np.ndarray, float] | None:
        """3 to 5: sums of gradients, then of Hessians, float64 (bins, count), and the rate of the steps."""
        masks = await self._masks(round, 0, count)
        if masks is None or (answer := await self._sums.add_up(round, masks)) is None:
            return None
        words, mask = answer.masked()
        hidden = MaskedTensor(torch.from_numpy(words.view(np.int64)), "sums over own bins, under a mask")
        await self._server.send(MaskedSums(round, self._ctx.admit_masked(hidden)))
        opened = await self._server.recv(OpenedSums, round, bins=self._bins, vectors=count)
        if opened is None:
            return None
        units = opened.units.numpy()
        if not (np.isfinite(units).all() and (units > 0).all()):
            raise ContractError(SERVER, "OpenedSums", "units", "numbers above 0", str(units)[:100])
        if not 0 < opened.rate <= 1:
            raise ContractError(SERVER, "OpenedSums", "rate", "above 0 and at most 1", str(opened.rate))
        try:
            found = self._sums.rounded(opened.y.numpy().view(np.uint64) - mask)
        except InputError as wrong:
            raise ContractError(SERVER, "OpenedSums", "y", "sums under our mask", str(wrong)) from None
        return found * units, opened.rate

    async def _masks(self, round: int, level: int, count: int) -> Masks | None:
        masks = await self._server.recv(Masks, round, degree=self._sums.degree, vectors=count)
        if masks is not None and masks.level != level:
            raise ContractError(SERVER, "Masks", "level", str(level), str(masks.level))
        return masks

    async def _probe(self, round: int) -> bool:
        masks = await self._masks(round, PROBE, PROBES)
        if masks is None:
            return False
        received = sha256(masks.d.numpy().tobytes())
        answer = await self._sums.add_up(round, masks, _hashed(received.update))
        if answer is None:
            return False
        probe = ProbeAnswer(self._sums.size, self._sums.public, answer, received.digest())
        await self._server.send(ProbeDigest(round, torch.frombuffer(bytearray(probe.digest), dtype=torch.uint8)))
        seed = await self._server.recv(ProbeSeed, round, nonce=NONCE)
        if seed is None:
            return False
        try:
            y = probe.open(seed.seed.numpy().tobytes())
        except InputError as wrong:
            raise ContractError(SERVER, "ProbeSeed", "seed", "that of the vectors before", str(wrong)) from None
        await self._server.send(ProbeSums(round, self._ctx.release(torch.from_numpy(y.view(np.int64)))))
        return True


def _hashed(update: Callable[[bytes], None]) -> Callable[[int, Whole], Whole]:
    def read(_number: int, c: Whole) -> Whole:
        update(c.tobytes())
        return c

    return read


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
