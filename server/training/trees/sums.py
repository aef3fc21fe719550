"""Sums over the parties' bins under encryption, and the sides of splits, for trees that grow at the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.common.contracts.prediction import SPLITS
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.encryption.linear import VectorKeys
from colonnade.common.encryption.messages import FALLING, KINDS, MISSING, RISING, WIDEST, WORDS, BinCounts
from colonnade.common.errors import ContractError, InputError
from colonnade.common.protocols.secureboost import CELLS, Config, Nodes, Sides, Sums, Wanted, digits
from colonnade.server.training.context import ServerContext
from colonnade.server.training.sums.session import SumSession
from colonnade.server.training.trees.forest import AskedSplit, Forest
from colonnade.server.training.trees.grower import Query
from colonnade.server.training.trees.splits import ColumnShape, Whole


class TreeAbandoned(Exception):  # not an error: the round is skipped
    """The quorum went on without a party, and a tree needs the sums of all."""


@dataclass
class TreeSums:
    """One session's exchange with the parties.

    Attributes:
        columns: by party, once `open` has returned.
        last: the newest sums, as the parties sent them.
    """

    ctx: ServerContext
    clients: Cohort
    cfg: Config
    forest: Forest

    def __post_init__(self) -> None:
        self._opened = SumSession(self.ctx, self.clients, encrypted=self.cfg.gradients == "encrypted")
        self.size = self._opened.size
        self.columns: list[list[ColumnShape]] = []
        self.last: Responses[Any] = Responses({}, ())
        self._names = tuple(self.clients)

    async def open(self, round: int) -> None:
        """1 and 2. Raises ContractError if a party has other columns than those that the forest was begun with."""
        await self._opened.open(round, self._bins)

    def _bins(self, shapes: Mapping[str, BinCounts]) -> list[int]:
        self.columns = [_columns(party, shape) for party, shape in shapes.items()]
        self._refuse_other_columns()
        return [sum(column.bins for column in columns) for columns in self.columns]

    async def sums(self, round: int, level: int, query: Query) -> list[Whole]:
        """3 and 4: each party's sums over its bins, int64 (bins, vectors).

        Raises:
            ContractError: a party's answer does not decrypt, or is of other bins.
        """
        if self.cfg.gradients == "encrypted" or not level:
            keys = await self._opened.send(round, level, 2 * query.groups, query.vectors)
        else:
            keys = await self._nodes(round, level, query)
        answers = await self.clients.collect(Sums, round, self.ctx.quorum, vectors=2 * query.groups)
        self._refuse_missing(answers)
        found = []
        for (name, answer), columns in zip(answers.items(), self.columns, strict=True):
            bins = sum(column.bins for column in columns)
            if answer.level != level or len(answer.y) != bins:
                got = f"level {answer.level}, {len(answer.y)} bins"
                raise ContractError(name, "Sums", "y", f"level {level}, {bins} bins", got)
            hint = self._opened.hints[name]
            try:
                found.append(self._opened.sender.decrypt(hint, keys, answer.y.numpy().view(np.uint64)))
            except InputError as wrong:
                raise ContractError(name, "Sums", "y", "sums of its hint and our vectors", str(wrong)) from None
        return found

    async def _nodes(self, round: int, level: int, query: Query) -> VectorKeys:
        keys, width = await self._opened.begin(round, level, 2 * query.groups), digits(self.ctx.federation, self.cfg)
        numbers = (query.places + 1).astype(f"<u{width}")
        places = torch.from_numpy(numbers.view(np.uint8).reshape(*numbers.shape, width))
        for number, some in enumerate(torch.split(places, CELLS)):
            await self.clients.broadcast(Nodes(round, level, number, some))
        return keys

    async def sides(self, round: int, level: int, wanted: Mapping[int, Sequence[AskedSplit]]) -> None:
        """5 and 6: teaches the forest on which side of new records every row is."""
        rows, names = self.forest.rows, [self._names[party] for party in wanted]
        for party, records in wanted.items():
            if len(self.forest.records[party]) + len(records) > SPLITS:
                raise InputError(
                    f"the trees ask {self._names[party]} for more than {SPLITS} splits", hint="grow fewer trees"
                )
        known = {party: len(self.forest.records[party]) for party in wanted}
        asked = {self._names[party]: _wanted(round, level, known[party], records) for party, records in wanted.items()}
        await self.clients.broadcast(asked)
        blocks: dict[str, list[NDArray[np.uint8]]] = {name: [] for name in names}
        for number, first in enumerate(range(0, rows, CELLS)):
            wide = -(-min(CELLS, rows - first) // 8)
            answers = await self.clients.collect(Sides, round, self.ctx.quorum, among=names, bytes=wide)
            self._refuse_missing(answers, names)
            for name, answer in answers.items():
                due = len(asked[name].columns)
                if (answer.level, answer.block) != (level, number) or len(answer.s) != due:
                    got = f"level {answer.level}, block {answer.block}, {len(answer.s)} splits"
                    expected = f"level {level}, block {number}, {due} splits"
                    raise ContractError(name, "Sides", "s", expected, got)
                blocks[name].append(answer.s.numpy())
        for (party, records), name in zip(wanted.items(), names, strict=True):
            self.forest.learn(party, records, np.concatenate(blocks[name], axis=1))

    def _refuse_missing(self, answers: Responses[Any], asked: Sequence[str] = ()) -> None:
        """Keeps the answers for the round's record. Raises TreeAbandoned if one is missing."""
        missing = tuple(name for name in asked or self._names if name not in answers)
        self.last = replace(answers, missing=missing)  # parties that were not asked are not
        if missing:
            raise TreeAbandoned

    def _refuse_other_columns(self) -> None:
        """The records of a forest that was begun are of the columns of then."""
        now = [[[c.bins, c.ordered, c.missing, c.rising] for c in columns] for columns in self.columns]
        then = self.ctx.state.keep("columns", lambda: list(now))
        for name, ours, theirs in zip(self._names, then, now, strict=True):
            if ours != theirs:
                raise ContractError(name, "BinCounts", "counts", "the columns that the run began with", "others")


def _columns(party: str, shape: BinCounts) -> list[ColumnShape]:
    counts, kinds = shape.counts.tolist(), shape.kinds.tolist()
    if len(counts) != len(kinds) or not KINDS.issuperset(kinds):
        raise ContractError(party, "BinCounts", "kinds", "a kind for every column", str(kinds)[:100])
    if not counts or min(counts) < 2 or max(counts) > WIDEST:
        raise ContractError(party, "BinCounts", "counts", f"2 to {WIDEST} bins a column", str(counts)[:100])
    return [
        ColumnShape(count, not kind & WORDS, bool(kind & MISSING), bool(kind & RISING) - bool(kind & FALLING))
        for count, kind in zip(counts, kinds, strict=True)
    ]


def _wanted(round: int, level: int, first: int, records: Sequence[AskedSplit]) -> Wanted:
    left = np.zeros((len(records), WIDEST // 8), np.uint8)
    for line, record in zip(left, records, strict=True):
        line[: len(record.left)] = np.frombuffer(record.left, np.uint8)
    columns = torch.tensor([record.column for record in records], dtype=torch.int64)
    return Wanted(round, level, first, columns, torch.from_numpy(left))
