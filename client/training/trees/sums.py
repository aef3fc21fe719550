"""A party's sums over its bins, of vectors that the server encrypts."""

from __future__ import annotations

import os

import numpy as np
import torch

from colonnade.client.training.context import ClientContext
from colonnade.client.training.trees.bins import BinnedTable
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.encryption.clear import ClearHolder, in_groups
from colonnade.common.encryption.linear import Holder, Whole, public_matrix
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.protocols.secureboost import (
    BLOCK,
    MISSING,
    NONCE,
    WORDS,
    Config,
    HintPart,
    Masks,
    Nonces,
    Shape,
    Sums,
    Vectors,
    trees_of,
)


class PartySums:
    """One session's answers.

    Attributes:
        degree: rows of the server's `Masks`.
    """

    def __init__(self, ctx: ClientContext, server: Link, cfg: Config, table: BinnedTable) -> None:
        self._ctx, self._server, self._table = ctx, server, table
        self._encrypted = cfg.gradients == "encrypted"
        self.degree = DEGREE if self._encrypted else 0
        self._blocks = torch.split(ctx.schedule.partition.train, BLOCK)
        self._holder: Holder | ClearHolder | None = None
        self._root: dict[int, Whole] = {}  # by block, in the clear

    async def open(self, round: int) -> bool:
        """1 and 2, in the session's first round; False if the server has moved on."""
        if self._holder is not None:
            return True
        ctx, table = self._ctx, self._table
        train = ctx.schedule.partition.train
        kinds = [WORDS * (each.cuts is None) + MISSING * (each.count > each.values) for each in table.columns]
        nonce = torch.frombuffer(bytearray(os.urandom(NONCE)), dtype=torch.uint8)
        counts = ctx.release(torch.tensor(table.counts, dtype=torch.int64))
        await self._server.send(Shape(round, counts, ctx.release(torch.tensor(kinds, dtype=torch.uint8)), nonce))
        names = ctx.federation.names
        nonces = await self._server.recv(Nonces, round, members=1 + len(names), nonce=NONCE)
        if nonces is None:
            return False
        if not torch.equal(nonces.nonces[1 + names.index(ctx.name)], nonce):
            raise ContractError(SERVER, "Nonces", "nonces", "the party's own nonce at its place", "another")
        size, matrix = SumSize(len(train)), table.one_hot(train)
        if not self._encrypted:
            self._holder = ClearHolder(size, matrix)
            return True
        public = public_matrix([line.numpy().tobytes() for line in nonces.nonces], size)
        holder = Holder(size, public, matrix)
        for number, words in enumerate(holder.hint()):
            h = MaskedTensor(torch.from_numpy(words.view(np.int64)), "bins, encrypted")
            await self._server.send(HintPart(round, number, ctx.admit_masked(h)))
        self._holder = holder
        return True

    async def answer(self, round: int, masks: Masks) -> bool:
        """Receives the vectors of a level, and sends their sums; False if the server has moved on."""
        assert self._holder is not None  # opened before
        answer, count = self._holder.begin(masks.d.numpy().view(np.uint64)), masks.d.shape[1]
        by_node = masks.level > 0 and not self._encrypted
        wide = trees_of(self._ctx.federation) if by_node else count
        for number, block in enumerate(self._blocks):
            came = await self._server.recv(Vectors, round, rows=len(block), vectors=wide)
            if came is None:
                return False
            if (came.level, came.block) != (masks.level, number):
                expected, got = f"level {masks.level}, block {number}", f"level {came.level}, block {came.block}"
                raise ContractError(SERVER, "Vectors", "block", expected, got)
            c = came.c.numpy()
            if by_node:
                c = _of_nodes(self._root[number], c, count // 2)
            elif not self._encrypted:
                self._root[number] = c
            answer.add(c.view(np.uint64))
        y = torch.from_numpy(answer.end().view(np.int64))
        await self._server.send(Sums(round, masks.level, self._ctx.release(y)))
        return True


def _of_nodes(root: Whole, places: Whole, nodes: int) -> Whole:
    try:
        return in_groups(root, places, nodes)
    except InputError as wrong:
        raise ContractError(SERVER, "Vectors", "c", "nodes of the level", str(wrong)) from None
