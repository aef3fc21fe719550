"""A session of sums over the parties' bins under encryption, server side: its opening, and vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.encryption.clear import ClearSender
from colonnade.common.encryption.linear import Hint, Sender, VectorKeys, Whole, public_matrix
from colonnade.common.encryption.messages import BLOCK, NONCE, PART, BinCounts, HintPart, Masks, Nonces, Vectors
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.encryption.ring import Public
from colonnade.common.errors import ContractError
from colonnade.server.training.context import ServerContext


class SumSession:
    """Sums over all training rows.

    Args:
        encrypted: False if vectors travel as they are.
        weight: the largest magnitude of an entry of the parties' matrices.

    Attributes:
        sender: encrypts and decrypts, once the session is open.
        public: the matrix A, likewise.
        hints: by party, likewise.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, *, encrypted: bool, weight: int = 1) -> None:
        self._ctx, self._clients, self._encrypted = ctx, clients, encrypted
        self.size = SumSize(len(ctx.schedule.partition.train), weight)
        self.sender: Sender = ClearSender(self.size)
        self.hints: dict[str, Hint] = {}
        self.public: Public

    async def open(self, round: int, bins: Callable[[Mapping[str, BinCounts]], Sequence[int]]) -> None:
        """1 and 2: the shapes of the parties' columns, and their hints.

        Args:
            bins: checks the shapes, in roster order, and says how many bins each has.
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
        """Fresh secrets of `count` vectors, whose masks every party is sent."""
        keys = self.sender.keys(count)
        await self._clients.broadcast(Masks(round, level, torch.from_numpy(keys.dummy.view(np.int64))))
        return keys

    async def send(self, round: int, level: int, count: int, vectors: Callable[[int, int], Whole]) -> VectorKeys:
        """3: sends vectors to every party; returns their secrets.

        Args:
            vectors: those of the rows `first` to `last`, int64 (last - first, count).
        """
        keys = await self.begin(round, level, count)
        for number, first in enumerate(range(0, self.size.rows, BLOCK)):
            last = min(first + BLOCK, self.size.rows)
            c = self.sender.encrypt(keys, vectors(first, last), first // DEGREE).view(np.int64)
            await self._clients.broadcast(Vectors(round, level, number, torch.from_numpy(c)))
        return keys
