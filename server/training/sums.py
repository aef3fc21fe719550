"""Sums under encryption over the parties' bins: a session of them, and sums that go back to their owners."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.encryption.clear import ClearSender
from colonnade.common.encryption.linear import Hint, Sender, VectorKeys, Whole, public_matrix
from colonnade.common.encryption.messages import (
    BINS,
    BLOCK,
    DIGEST,
    NONCE,
    PART,
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
from colonnade.common.encryption.parameters import DEGREE, PROBES, SumSize, solvable
from colonnade.common.encryption.probe import Probe, digest
from colonnade.common.encryption.ring import Public
from colonnade.common.errors import ContractError, InputError
from colonnade.common.models.vector_free import Floats
from colonnade.server.training.context import ServerContext


class SumSession:
    """Sums over all training rows. `weight` is the largest magnitude of an entry of the parties' matrices.

    Once the session is open, `sender` encrypts and decrypts, `public` is the matrix A, and `hints` are by party.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, *, encrypted: bool, weight: int = 1) -> None:
        self._ctx, self._clients, self._encrypted = ctx, clients, encrypted
        self.size = SumSize(len(ctx.schedule.partition.train), weight)
        self.sender: Sender = ClearSender(self.size)
        self.hints: dict[str, Hint] = {}
        self.public: Public

    async def open(self, round: int, bins: Callable[[Mapping[str, BinCounts]], Sequence[int]]) -> None:
        """Steps 1 and 2: receives the shapes of the parties' columns and their hints.

        `bins` checks the shapes, in roster order, and returns each party's number of bins.
        """
        all_parties = replace(self._ctx.quorum, need=None)
        shapes = await self._clients.collect(BinCounts, round, all_parties, nonce=NONCE)
        counts = dict(zip(shapes, bins(shapes), strict=True))
        nonces = [os.urandom(NONCE), *(shape.nonce.numpy().tobytes() for shape in shapes.values())]
        joined = torch.frombuffer(bytearray(b"".join(nonces)), dtype=torch.uint8).view(-1, NONCE)
        await self._clients.broadcast(Nonces(round, joined))
        if not self._encrypted:
            self.hints = dict.fromkeys(shapes, Hint(np.empty((0, DEGREE), np.uint64)))
            return
        self.public = public_matrix(nonces, self.size)
        self.sender = Sender(self.size, self.public)
        parts: dict[str, list[NDArray[np.int64]]] = {name: [] for name in counts}
        for number in range(-(-max(counts.values()) // PART)):
            due = {name for name, count in counts.items() if count > number * PART}
            answers = await self._clients.collect(HintPart, round, all_parties, among=due, degree=DEGREE)
            for name, answer in answers.items():
                wanted = min(PART, counts[name] - number * PART)
                if answer.part != number or len(answer.h) != wanted:
                    got = f"part {answer.part} of {len(answer.h)} bins"
                    raise ContractError(name, "HintPart", "h", f"part {number} of {wanted} bins", got)
                parts[name].append(answer.h.numpy())
        self.hints = {name: Hint(np.concatenate(each).view(np.uint64)) for name, each in parts.items()}

    async def begin(self, round: int, level: int, count: int) -> VectorKeys:
        """Draws fresh secrets for `count` vectors, and sends every party their masks."""
        keys = self.sender.keys(count)
        await self._clients.broadcast(Masks(round, level, torch.from_numpy(keys.dummy.view(np.int64))))
        return keys

    async def send(self, round: int, level: int, count: int, vectors: Callable[[int, int], Whole]) -> VectorKeys:
        """Step 3: sends vectors to every party; returns their secrets.

        `vectors(first, last)` returns those of a range of rows, int64 (last - first, count).
        """
        keys = await self.begin(round, level, count)
        for number, first in enumerate(range(0, self.size.rows, BLOCK)):
            last = min(first + BLOCK, self.size.rows)
            c = self.sender.encrypt(keys, vectors(first, last), first // DEGREE).view(np.int64)
            await self._clients.broadcast(Vectors(round, level, number, torch.from_numpy(c)))
        return keys


class ReturnedSums:
    """One session's exchange with the parties. `told`: an earlier session warned of at least as many bins of these
    columns.
    """

    def __init__(
        self,
        ctx: ServerContext,
        clients: Cohort,
        *,
        encrypted: bool = True,
        bits: int | None = None,
        weight: int = 1,
        told: bool = False,
    ) -> None:
        self._told = told
        self._ctx, self._clients, self._encrypted = ctx, clients, encrypted
        self._session = SumSession(ctx, clients, encrypted=encrypted, weight=weight)
        self.bits = bits or self._session.size.precision
        if encrypted:
            self._session.size.refuse_large(self.bits)
        self._bins: dict[str, int] = {}

    async def open(self, round: int) -> None:
        """Steps 1 and 2, and the probe. Raises ContractError if a party's hint is invalid."""
        await self._session.open(round, self._counted)
        if self._encrypted:
            await self._probe(round)

    def _counted(self, shapes: Mapping[str, BinCounts]) -> Sequence[int]:
        for name, shape in shapes.items():
            counts = shape.counts.tolist()
            if len(counts) != 1 or shape.kinds.tolist() != [0] or not 2 <= counts[0] <= BINS:
                raise ContractError(name, "BinCounts", "counts", f"one number, of 2 to {BINS} bins", str(counts)[:100])
            self._bins[name] = counts[0]
        if not self._told and (said := solvable(self._bins, self._session.size.rows)):
            self._ctx.warn(said)
        return tuple(self._bins.values())

    async def _probe(self, round: int) -> None:
        seed, all_parties = os.urandom(NONCE), replace(self._ctx.quorum, need=None)
        probe = Probe(self._session.size, self._session.public, seed)
        await self._clients.broadcast(Masks(round, PROBE, torch.from_numpy(probe.dummy.view(np.int64))))
        for number, c in enumerate(probe.blocks()):
            await self._clients.broadcast(Vectors(round, PROBE, number, torch.from_numpy(c.view(np.int64))))
        digests = await self._clients.collect(ProbeDigest, round, all_parties, digest=DIGEST)
        await self._clients.broadcast(ProbeSeed(round, torch.frombuffer(bytearray(seed), dtype=torch.uint8)))
        answers = await self._clients.collect(ProbeSums, round, all_parties, vectors=PROBES)
        for name, answer in answers.items():
            self._refuse_other_bins(name, "ProbeSums", len(answer.y))
            y = answer.y.numpy().view(np.uint64)
            if digest(y) != digests[name].digest.numpy().tobytes():
                raise ContractError(name, "ProbeSums", "y", "the sums whose hash it sent before", "others")
            try:
                probe.refuse(self._session.hints[name], y)
            except InputError as wrong:
                raise ContractError(name, "ProbeSums", "y", "sums of zeros under its hint", str(wrong)) from None

    async def give(
        self, round: int, vectors: Whole, units: Floats, rate: float = 1.0, level: int = 0
    ) -> Responses[MaskedSums]:
        """Sends vectors, (rows, v), and returns to every party that answers in time the sums over its own bins.

        `level` distinguishes the sums of a round.
        """
        count = vectors.shape[1]
        keys = await self._session.send(round, level, count, lambda first, last: vectors[first:last])
        answers = await self._clients.collect(MaskedSums, round, self._ctx.quorum, vectors=count)
        returned = {}
        for name, answer in answers.items():
            self._refuse_other_bins(name, "MaskedSums", len(answer.y))
            y = self._session.sender.opened(self._session.hints[name], keys, answer.y.numpy().view(np.uint64))
            returned[name] = OpenedSums(round, rate, torch.from_numpy(units), torch.from_numpy(y.view(np.int64)))
        await self._clients.broadcast(returned)
        return answers

    def _refuse_other_bins(self, name: str, kind: str, bins: int) -> None:
        if bins != self._bins[name]:
            raise ContractError(name, kind, "y", f"{self._bins[name]} bins", str(bins))
