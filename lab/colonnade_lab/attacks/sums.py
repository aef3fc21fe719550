"""What sums of boosted trees reveal: columns to a curious or malicious server, and labels to a party.

A curious server knows its vectors V (rows, vectors), every party's M V, and the side of each row at every used split. M
is one-hot, so M V = S is an underdetermined linear system with little freedom: in each column the guess is the bin with
the largest value in the ridge solution with the bins' shares as its prior. Weng et al. 2020 ("Privacy Leakage of
Real-World Vertical Federated Learning") has the active form, in which the server chooses the vectors: one power of two
per row.

A party sees which splits of its own columns are used, and with gradients in the clear all gradients and the rows in
every node (as in systems that send these; Takahashi et al. 2023, ID2Graph). It knows a few labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from colonnade.client.training.bins import BinnedTable, binned
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.errors import InputError
from colonnade.common.protocols.secureboost import levels, vectors_at, vectors_in
from colonnade.server.protocols import FORESTS
from colonnade.server.protocols.secureboost import ForestJoint, TreeSums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.forest import Forest, Tree
from colonnade.server.training.trees.gradients import TreeObjective
from colonnade.server.training.trees.grower import Query
from colonnade.simulation.federation import Simulation
from colonnade_lab.attacks.bounds import Area, area
from colonnade_lab.attacks.completion import DRAWS, balanced
from colonnade_lab.attacks.run import AttackedRun

_RIDGE = 1e-9  # of the vectors' mean square
_EVERY = (1, 3, 10, 100)  # trees

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnRead:
    """The server's guess of a party's column.

    Args:
        found: share of training rows whose bin is right, from sums and sides.
        by_sums: from sums alone.
        by_sides: from sides alone: the largest bin that the row's sides allow.
        base: share of the largest bin, which needs no message.
    """

    name: str
    bins: int
    found: float
    by_sums: float
    by_sides: float
    base: float


def read_columns(run: AttackedRun, party: str) -> list[ColumnRead]:
    """Guesses a party's columns from the sums that the server decrypted.

    Its vectors follow from its forest and the labels; the sums are over the party's bins, with the party's noise if
    any.
    """
    opened = _Opened(run)
    forest, train = opened.forest, run.schedule.partition.train.numpy()
    table, place = _table(run, party), run.config.federation.names.index(party)
    codes = table.codes[train]
    v = np.concatenate([part.astype(np.float64) for part in _vectors(run, opened)], axis=1)
    config: Any = run.config.federation.protocol
    v /= 2.0 ** config.bits_of(SumSize(len(train)))
    square = v.T @ v
    one_hot = np.concatenate([np.eye(count)[codes[:, k]] for k, count in enumerate(table.counts)], axis=1)
    shares, ends = one_hot.mean(axis=0), np.cumsum([0, *table.counts])
    sums = v.T @ one_hot
    if config.noise:
        sums += config.noise * np.random.default_rng(0).normal(size=sums.shape)
    varying = (shares * (1 - shares)).mean()
    square.flat[:: len(square) + 1] += _RIDGE * square.trace() / len(square) + config.noise**2 / varying + 1e-12
    weights = solve(square, sums - v.sum(axis=0)[:, None] * shares, assume_a="pos", overwrite_a=True)
    found = []
    for number, column in enumerate(table.columns):
        share = shares[ends[number] : ends[number + 1]]
        guess = share + v @ weights[:, ends[number] : ends[number + 1]]
        allowed = np.ones_like(guess, bool)
        for record, which in forest.records[place].items():
            if record.column == number:
                left = np.unpackbits(np.frombuffer(record.left, np.uint8), count=column.count).astype(bool)
                allowed &= np.where(forest.side(place, which)[train][:, None], left, ~left)
        both, by_sums, by_sides = (
            float((each.argmax(1) == codes[:, number]).mean())
            for each in (np.where(allowed, guess, -np.inf), guess, allowed * share)
        )
        found.append(ColumnRead(column.name, column.count, both, by_sums, by_sides, float(share.max())))
    return found


@dataclass(frozen=True)
class Chosen:
    """What a server with chosen vectors reads.

    Args:
        a_vector: rows whose bins, in all columns, a vector reveals.
        read: share of the training rows whose bins a run's vectors reveal.
        right: share of the read bins that are right.
    """

    a_vector: int
    vectors: int
    rows: int
    read: float
    right: float


def read_actively(run: AttackedRun, party: str) -> Chosen:
    """Simulates a server that encrypts powers of two instead of gradients, as many as the run's trees would need."""
    table, place = _table(run, party), run.config.federation.names.index(party)
    train = run.schedule.partition.train.numpy()
    codes, count = np.full((len(train), len(table.columns)), -1), 0

    async def serve(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
        nonlocal count
        exchange, first = TreeSums(ctx, clients, cfg, Forest(len(clients), len(ctx.labels))), 0
        each = exchange.size.largest_sum.bit_length()
        rounds = min(ctx.schedule.rounds, -(-len(train) // (each * vectors_in(ctx.federation, cfg))))
        async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
            if t > rounds:  # parties refuse an end before the agreed one
                ctx.skip(t, exchange.last)
                continue
            if t == 1:
                await exchange.open(t)
            for level in range(levels(cfg)):
                asked = _Powers(len(train), vectors_at(level, ctx.federation, cfg), each, first)
                sums = (await exchange.sums(t, level, asked))[place]
                codes[first : first + asked.told] = _powers_read(sums, table.counts, each)[: max(len(train) - first, 0)]
                first, count = first + asked.told, count + 2 * asked.groups
            ctx.skip(t, exchange.last)

    federation = run.config.federation
    protocol = federation.protocol.model_copy(update={"gradients": "encrypted"})  # in the clear parties see vectors
    config = run.config.model_copy(update={"federation": federation.model_copy(update={"protocol": protocol})})
    Simulation(config, run.base, sample=run.sample, instead={SERVER: serve}).run()
    there = codes[:, 0] >= 0
    right = float((codes[there] == table.codes[train][there]).mean())
    return Chosen(-(-int(there.sum()) // max(count, 1)), count, len(train), float(there.mean()), right)


class _Powers(Query):
    """Vectors of a level, each with powers of two at its own rows."""

    def __init__(self, rows: int, count: int, each: int, first: int) -> None:
        self.rows, self.groups, self._each, self._first, self.told = rows, count // 2, each, first, count * each

    def vectors(self, first: int, last: int) -> NDArray[np.int64]:
        found = np.zeros((last - first, 2 * self.groups), np.int64)
        rows = np.arange(self._first, min(self._first + self.told, self.rows))
        number, power = np.divmod(rows - self._first, self._each)
        here = (rows >= first) & (rows < last)
        found[rows[here] - first, number[here]] = np.int64(1) << power[here]
        return found


def _powers_read(sums: NDArray[np.int64], counts: Sequence[int], each: int) -> NDArray[np.int64]:
    """The bin of every row of some vectors, (rows, columns), from sums over bins (bins, vectors)."""
    bits = (sums.T[:, None, :] >> np.arange(each)[:, None]) & 1  # (vectors, each, bins)
    ends = np.cumsum(counts)[:-1]
    return np.stack([part.argmax(-1).ravel() for part in np.split(bits, ends, axis=2)], axis=1)


@dataclass(frozen=True)
class LabelsRead:
    """A party's guess of other rows' labels from a few known ones and `what` it sees besides its columns.

    `baseline` is that of the same attacker without messages.
    """

    what: str
    area: Area
    baseline: Area


def read_labels(run: AttackedRun, party: str, known: int, seed: int) -> list[LabelsRead]:
    """A party's guesses by source: nodes if gradients are in the clear, else its own splits."""
    opened = _Opened(run)
    forest = opened.forest
    place, train = run.config.federation.names.index(party), run.schedule.partition.train
    table, labels = _table(run, party), run.labels[train]
    own = np.concatenate([np.eye(count)[table.codes[train.numpy(), k]] for k, count in enumerate(table.counts)], axis=1)
    seen: dict[str, Floats] = {}
    rows = train.numpy()
    config: Any = run.config.federation.protocol
    if config.gradients == "clear":
        first = next(_vectors(run, opened))[:, :1].astype(np.float64)
        seen["the first tree's gradients"] = -first
        for count in _EVERY:
            if count <= len(forest.trees):
                nodes = [_members(forest, tree, rows) for tree in forest.trees[:count]]
                seen[f"rows of the nodes of {count} trees"] = np.concatenate(nodes, axis=1)
    sides = [forest.side(place, which)[rows] for which in forest.records[place].values()]
    used = _used(forest, place)
    if sides:
        seen["its own splits, by how often they are used"] = np.stack(sides, axis=1) * np.sqrt(used)
    baseline = scored(own, labels, known, seed)
    return [LabelsRead(what, scored(values, labels, known, seed), baseline) for what, values in seen.items()]


def scored(values: Floats, labels: Tensor, known: int, seed: int) -> Area:
    """The median area, over draws of the known labels, of a logistic regression on the values."""
    areas = []
    for draw in range(DRAWS):
        have = balanced(labels, known, seed * DRAWS + draw)
        rest = torch.ones(len(labels), dtype=torch.bool)
        rest[have] = False
        scale = values.std(axis=0)
        inputs = values[:, scale > 0] / np.sqrt(max(int((scale > 0).sum()), 1))
        model = LogisticRegression(C=10.0, max_iter=300).fit(inputs[have.numpy()], labels[have].numpy())
        told = torch.from_numpy(model.predict_proba(inputs[rest.numpy()]))
        areas.append(area(told, torch.from_numpy(model.classes_)[None] == labels[rest][:, None]))
    return sorted(areas, key=lambda one: one.auc)[len(areas) // 2]


def _members(forest: Forest, tree: Tree, rows: NDArray[np.int64]) -> Floats:
    """Membership of rows in each node of a tree, (rows, nodes)."""
    return np.stack([inside[rows] for inside in _inside(forest, tree)], axis=1).astype(np.float64)


def _inside(forest: Forest, tree: Tree) -> list[NDArray[np.bool_]]:
    """Membership of all rows in each node, bool (all rows,) each."""
    found = [np.ones(forest.rows, bool)] * len(tree.party)
    for node, (left, right) in enumerate(tree.children):
        if tree.party[node] >= 0:
            side = forest.side(int(tree.party[node]), int(tree.record[node]))
            found[left], found[right] = found[node] & side, found[node] & ~side
    return found


def _used(forest: Forest, place: int) -> Floats:
    counts = np.zeros(len(forest.records[place]))
    for tree in forest.trees:
        np.add.at(counts, tree.record[tree.party == place], 1)
    return counts


def _vectors(run: AttackedRun, opened: _Opened) -> Iterator[NDArray[np.int64]]:
    """The server's vectors, int64 (training rows, vectors) a tree: of the root, then of the smaller child of splits."""
    config: Any = run.config.federation.protocol
    forest, objective, train = opened.forest, TreeObjective(opened.ctx), run.schedule.partition.train.numpy()
    bits = config.bits_of(SumSize(len(train)))
    scores = np.tile(opened.start, (forest.rows, 1))
    for number, tree in enumerate(forest.trees):
        if number % scores.shape[1] == 0:  # a round's trees have the same gradients
            gradients = objective.gradients(scores[train], bits, fixed=config.noise > 0)
        inside, depth, asked = _inside(forest, tree), np.zeros(len(tree.party), int), [0]
        for node, children in enumerate(tree.children):
            if tree.party[node] >= 0:
                depth[children] = depth[node] + 1
                if depth[node] + 1 < config.depth:
                    asked.append(min(children, key=lambda child: int(inside[child][train].sum())))
        there = np.stack([inside[node][train] for node in asked], axis=1)
        whole = gradients.first[:, tree.output, None], gradients.second[:, tree.output, None]
        yield np.concatenate([each * there for each in whole], axis=1)
        scores[:, tree.output] += forest.values(tree)


class _Opened:
    """The server's state at the end."""

    def __init__(self, run: AttackedRun) -> None:
        if run.protocol != "secureboost":
            raise InputError(f"{run.protocol}: no sum over a bin reaches the server", hint="take a run of secureboost")
        self.ctx, config = run.server(), run.config.federation.protocol
        joint = FORESTS[run.protocol](self.ctx, config)
        assert isinstance(joint, ForestJoint)
        self.forest, self.start = joint.forest, joint.start.numpy()
        if getattr(config, "rows", 1) != 1:
            raise InputError("federation.protocol.rows: these attacks know no samples", hint="take rows: 1")


def _table(run: AttackedRun, party: str) -> BinnedTable:
    config: Any = run.config.federation.protocol
    return binned(run.party(party)[0], most=config.bins, least=config.least)
