"""A party's sums of the server's encrypted vectors over its own matrix, and those that the server returns to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256

import numpy as np
import torch

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.encryption.clear import ClearHolder
from colonnade.common.encryption.linear import Answer, Holder, PartyMatrix, Whole, public_matrix, rounded
from colonnade.common.encryption.messages import (
    BLOCK,
    NONCE,
    PROBE,
    BinCounts,
    HintPart,
    MaskedSums,
    Masks,
    Nonces,
    OpenedSums,
    ProbeDigest,
    ProbeSeed,
    ProbeSums,
    Vectors,
)
from colonnade.common.encryption.parameters import DEGREE, PROBES, SumSize
from colonnade.common.encryption.probe import ProbeAnswer
from colonnade.common.encryption.ring import Public, Words
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.outgoing import MaskedTensor


class PartySums:
    """One session's sums.

    Args:
        matrix: M, over the training rows.
        encrypted: False if vectors travel in the clear.
        weight: the largest magnitude of an entry of M.

    Attributes:
        degree: rows of the server's `Masks`.
        public: the matrix A, once the session is open.
    """

    def __init__(
        self, ctx: ClientContext, server: Link, matrix: PartyMatrix, *, encrypted: bool, weight: int = 1
    ) -> None:
        self._ctx, self._server, self._matrix, self._encrypted = ctx, server, matrix, encrypted
        self.degree = DEGREE if encrypted else 0
        self._blocks = torch.split(ctx.schedule.partition.train, BLOCK)
        self._holder: Holder | ClearHolder | None = None
        self.size = SumSize(matrix.shape[1], weight)
        self.public: Public

    async def open(self, round: int, counts: Sequence[int], kinds: Sequence[int]) -> bool:
        """Steps 1 and 2, in the session's first round; False if the server has moved on. Arguments as for
        `BinCounts`.
        """
        if self._holder is not None:
            return True
        ctx = self._ctx
        nonce = torch.frombuffer(bytearray(os.urandom(NONCE)), dtype=torch.uint8)
        said = torch.tensor(counts, dtype=torch.int64), torch.tensor(kinds, dtype=torch.uint8)
        await self._server.send(BinCounts(round, ctx.release(said[0]), ctx.release(said[1]), nonce))
        names = ctx.federation.names
        nonces = await self._server.recv(Nonces, round, members=1 + len(names), nonce=NONCE)
        if nonces is None:
            return False
        if not torch.equal(nonces.nonces[1 + names.index(ctx.name)], nonce):
            raise ContractError(SERVER, "Nonces", "nonces", "the party's own nonce at its place", "another")
        if not self._encrypted:
            self._holder = ClearHolder(self.size, self._matrix)
            return True
        self.public = public_matrix([line.numpy().tobytes() for line in nonces.nonces], self.size)
        holder = Holder(self.size, self.public, self._matrix)
        for number, words in enumerate(holder.hint()):
            h = MaskedTensor(torch.from_numpy(words.view(np.int64)), "bins, encrypted")
            await self._server.send(HintPart(round, number, ctx.admit_masked(h)))
        self._holder = holder
        return True

    async def add_up(self, round: int, masks: Masks, *looks: Callable[[Whole], object]) -> Answer | None:
        """Receives a level's vectors, and sums them over the bins; None if the server has moved on.

        `looks` are called with each block of the server's values, int64 (rows, vectors).
        """
        assert self._holder is not None  # opened before
        answer, count = self._holder.begin(masks.d.numpy().view(np.uint64)), masks.d.shape[1]
        for number, block in enumerate(self._blocks):
            came = await self._server.recv(Vectors, round, rows=len(block), vectors=count)
            if came is None:
                return None
            if (came.level, came.block) != (masks.level, number):
                expected, got = f"level {masks.level}, block {number}", f"level {came.level}, block {came.block}"
                raise ContractError(SERVER, "Vectors", "block", expected, got)
            c = came.c.numpy()
            for look in looks:
                look(c)
            answer.add(c.view(np.uint64))
        return answer

    def rounded(self, words: Words) -> Whole:
        """M m from words Δ M m + error, int64 of their shape. Raises InputError if they belong to other sums."""
        return rounded(self.size, words) if self._encrypted else words.view(np.int64)


class OwnSums:
    """One session's sums over the party's own matrix. Arguments as for `PartySums`."""

    def __init__(
        self, ctx: ClientContext, server: Link, matrix: PartyMatrix, *, encrypted: bool = True, weight: int = 1
    ) -> None:
        self._ctx, self._server, self._bins, self._encrypted = ctx, server, matrix.shape[0], encrypted
        self._sums, self._opened = PartySums(ctx, server, matrix, encrypted=encrypted, weight=weight), False

    async def open(self, round: int) -> bool:
        """Opens the session, and answers the probe; False if the server has moved on."""
        if not self._opened:
            self._opened = await self._sums.open(round, (self._bins,), (0,))
            self._opened = self._opened and (not self._encrypted or await self._probe(round))
        return self._opened

    async def sums(self, round: int, count: int, level: int = 0) -> tuple[np.ndarray, float] | None:
        """Sums of the server's next vectors over the matrix, float64 (bins, count), and the step length's factor.

        `level` distinguishes the sums of a round.
        """
        masks = await self._masks(round, level, count)
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
        answer = await self._sums.add_up(round, masks, lambda c: received.update(c.data))
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
