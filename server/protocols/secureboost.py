"""SecureBoost, server side. The box: common/protocols/secureboost.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.contracts.boosting import scores_of
from colonnade.common.contracts.prediction import SPLITS
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.data.rows import generator
from colonnade.common.encryption.linear import VectorKeys
from colonnade.common.encryption.messages import FALLING, KINDS, MISSING, RISING, WIDEST, WORDS, BinCounts
from colonnade.common.errors import ContractError, InputError
from colonnade.common.protocols.secureboost import CELLS, Config, Nodes, Sides, Sums, Wanted, digits, levels, vectors_in
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.sums import SumSession
from colonnade.server.training.trees.forest import AskedSplit, Forest
from colonnade.server.training.trees.gradients import TreeObjective
from colonnade.server.training.trees.grower import Grower, Inconsistent, Query
from colonnade.server.training.trees.splits import ColumnShape, PartyColumns, Rules, Whole

_DEEP = 6


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Grows a tree in every round, or one for every class."""
    if cfg.gradients == "clear":
        ctx.warn("GRADIENTS IN THE CLEAR: every party is sent those of all training rows, and the rows of every node")
    forest, objective, names = _forest(ctx), TreeObjective(ctx), tuple(clients)
    exchange = TreeSums(ctx, clients, cfg, forest)
    bits = cfg.bits_of(exchange.size)
    if cfg.gradients == "encrypted" and cfg.depth > _DEEP:
        mb = math.ceil(8 * vectors_in(ctx.federation, cfg) * len(objective.rows) / 2**20)
        ctx.warn(f"depth {cfg.depth}: a round takes up to {mb} MB to every party, twice as much with every level")
    start: Tensor = ctx.state.keep("start", lambda: torch.from_numpy(objective.start()))
    scores, train, grower = forest.scores(start.numpy()), ctx.schedule.partition.train.cpu().numpy(), None
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        if grower is None:
            await exchange.open(t)  # 1, 2
            columns = [PartyColumns(each) for each in exchange.columns]
            rules, best_first = Rules(cfg.l2, cfg.gamma, cfg.min_hessian), cfg.grow == "best"
            grower = Grower(columns, rules, levels(cfg), cfg.rate, best_first, cfg.noise * 2**bits)
        try:
            trees = await grower.grow(
                forest, objective.gradients(scores[train], bits, fixed=cfg.noise > 0),
                partial(exchange.sums, t), partial(exchange.sides, t),
                _sampled(ctx, cfg, t), _allowed(ctx, cfg, t, grower.columns),
            )  # fmt: skip
        except TreeAbandoned:
            ctx.skip(t, exchange.last)
            continue
        except Inconsistent as found:
            raise ContractError(names[found.party], found.kind, "", found.expected, found.got) from None
        loss = objective.loss(scores[train])
        for tree in trees:
            scores[:, tree.output] += forest.values(tree)
        forest.trees += trees
        ctx.record(t, loss, exchange.last)
        evaluate_alone(ctx, t, lambda rows: objective.logits(scores[rows.cpu().numpy()]))


class ForestJoint:
    """The forest of the state; parties report the side of each row at their splits."""

    def __init__(self, ctx: ServerContext) -> None:
        self.forest, self._objective = _forest(ctx), TreeObjective(ctx)
        self.start = ctx.state.keep("start", lambda: torch.zeros(scores_of(ctx.federation), dtype=torch.float64))

    def of_sides(self, sides: Sequence[Tensor]) -> Tensor:
        """Packed sides in roster order, uint8 (rows, bytes) each -> logits (rows, outputs)."""
        left = [np.unpackbits(part.numpy(), axis=1).astype(bool) for part in sides]
        scores = np.tile(self.start.numpy(), (len(sides[0]), 1))
        for tree in self.forest.trees:
            scores[:, tree.output] += tree.apply(lambda party, record: left[party][:, record], len(scores))
        return self._objective.logits(scores)

    def bytes_of(self) -> list[int]:
        """Bytes of a row's sides, by party."""
        return [-(-len(records) // 8) for records in self.forest.records]


def forest(ctx: ServerContext, _cfg: Config) -> ForestJoint:
    """The forest of the state."""
    return ForestJoint(ctx)


def _forest(ctx: ServerContext) -> Forest:
    return ctx.state.keep("forest", lambda: Forest(len(ctx.federation.names), len(ctx.labels)))


def _sampled(ctx: ServerContext, cfg: Config, round: int) -> NDArray[np.bool_] | None:
    """The training rows of a tree, drawn uniformly: sampling by gradient would reveal rows of the rarer class."""
    if cfg.rows == 1:
        return None
    draw = torch.rand(
        len(ctx.schedule.partition.train), generator=generator("rows of a tree", ctx.federation.seed, round)
    )
    return (draw < cfg.rows).numpy()


def _allowed(
    ctx: ServerContext, cfg: Config, round: int, columns: Sequence[PartyColumns]
) -> list[NDArray[np.bool_]] | None:
    """The columns of a tree by party: a share drawn from all parties' columns together."""
    if cfg.columns == 1:
        return None
    ends = np.cumsum([len(party.columns) for party in columns])
    order = torch.randperm(int(ends[-1]), generator=generator("columns of a tree", ctx.federation.seed, round)).numpy()
    allowed = np.zeros(int(ends[-1]), bool)
    allowed[order[: math.ceil(cfg.columns * len(allowed))]] = True
    return np.split(allowed, ends[:-1])


class TreeAbandoned(Exception):  # not an error: the round is skipped
    """A party is missing: a tree needs the sums of all, even if the quorum continues without it."""


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
        """Steps 1 and 2. Raises ContractError if a party's columns differ from those that the forest began with."""
        await self._opened.open(round, self._bins)

    def _bins(self, shapes: Mapping[str, BinCounts]) -> list[int]:
        self.columns = [_columns(party, shape) for party, shape in shapes.items()]
        self._refuse_other_columns()
        return [sum(column.bins for column in columns) for columns in self.columns]

    async def sums(self, round: int, level: int, query: Query) -> list[Whole]:
        """Steps 3 and 4: each party's sums over its bins, int64 (bins, vectors).

        Raises ContractError if a party's answer does not decrypt or has other bins.
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
        """Steps 5 and 6: adds the side of every row at new records to the forest."""
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
        """Raises ContractError if columns changed: a begun forest's records refer to its first ones."""
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
