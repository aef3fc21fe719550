"""Trees that grow level by level, or best first, from sums that others compute."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from colonnade.common.encryption.clear import in_groups
from colonnade.server.training.trees.forest import AskedSplit, Forest, Tree
from colonnade.server.training.trees.splits import Bounds, Floats, PartyColumns, Rules, Split, Whole


@dataclass(frozen=True)
class Gradients:
    """First and second derivatives of the loss at the training rows, int64 (n, outputs), as whole multiples of steps.

    `rows` are the numbers of the training rows among all, int64 (n,); the steps are by output, float64 (outputs,).
    """

    rows: NDArray[np.int64]
    first: Whole
    second: Whole
    step: Floats
    second_step: Floats


class Query:
    """Vectors to sum: for every group of rows its gradients, then its Hessians, with zeros outside the group.

    `places` has the index of a row's group by output, or -1: int64 (n, outputs).
    """

    def __init__(self, gradients: Gradients, places: Whole, groups: int) -> None:
        self._gradients, self.places, self.groups, self.rows = gradients, places, groups, len(places)

    def vectors(self, first: int, last: int) -> Whole:
        """The vectors of a range of training rows, int64 (last - first, 2 groups)."""
        both = (numbers[first:last] for numbers in (self._gradients.first, self._gradients.second))
        return in_groups(np.concatenate([*both], axis=1), self.places[first:last], self.groups)


_TAIL = 12  # deviations of noise that are no contradiction

Sums = Callable[[int, Query], Awaitable[list[Whole]]]
"""(level, query) -> each party's sums over its bins, int64 (bins, 2 groups)."""
Sides = Callable[[int, Mapping[int, Sequence[AskedSplit]]], Awaitable[None]]
"""(level, new records by party): teaches the forest on which side of them the rows are."""


@dataclass(eq=False)
class _Node:
    output: int
    number: int
    rows: NDArray[np.int64]  # positions among the training rows
    total: Whole  # (2,)
    sums: list[Whole] = field(default_factory=list)  # by party: (bins, 2)
    low: float = -np.inf
    high: float = np.inf


@dataclass
class _Growing:
    """A tree that is being built, in lists over its nodes."""

    output: int
    party: list[int] = field(default_factory=lambda: [-1])
    record: list[int] = field(default_factory=lambda: [-1])
    children: list[tuple[int, int]] = field(default_factory=lambda: [(-1, -1)])
    value: list[float] = field(default_factory=lambda: [0.0])
    gain: list[float] = field(default_factory=lambda: [0.0])

    def split(self, node: int, party: int, record: int, gain: float) -> tuple[int, int]:
        left = len(self.party)
        for nodes, empty in ((self.party, -1), (self.record, -1), (self.value, 0.0), (self.gain, 0.0)):
            nodes += [empty, empty]
        self.children += [(-1, -1), (-1, -1)]
        self.party[node], self.record[node], self.gain[node] = party, record, gain
        self.children[node] = left, left + 1
        return self.children[node]

    def done(self) -> Tree:
        return Tree(self.output, np.array(self.party), np.array(self.record), np.array(self.children),
                    np.array(self.value), np.array(self.gain))  # fmt: skip


@dataclass(frozen=True)
class Grower:
    """Grows trees.

    Args:
        steps: most levels; best first, most splits.
        best_first: True to split in every step the node that gains most.
        noise: standard deviation of the parties' noise on a sum, in its units.
    """

    columns: Sequence[PartyColumns]
    rules: Rules
    steps: int
    rate: float
    best_first: bool = False
    noise: float = 0.0

    async def grow(
        self, forest: Forest, gradients: Gradients, sums: Sums, sides: Sides,
        sampled: NDArray[np.bool_] | None = None, allowed: Sequence[NDArray[np.bool_]] | None = None,
    ) -> list[Tree]:  # fmt: skip
        """Grows one tree per output, all in parallel: `sums` and `sides` are awaited at most once a step.

        Sums are requested for one child of every split; the other's are the parent's less these.

        Args:
            sampled: training rows that the trees are grown on, bool (n,); None for all.
            allowed: by party: columns considered, bool (columns,).
        """
        n, outputs = gradients.first.shape
        allowed = allowed or [np.ones(len(party.columns), bool) for party in self.columns]
        rows = np.arange(n) if sampled is None else np.flatnonzero(sampled)
        growing = [_Growing(output) for output in range(outputs)]
        fresh = asked = [_Node(output, 0, rows, _total(gradients, output, rows)) for output in range(outputs)]
        siblings, waiting = list[_Siblings](), list[_Wanting]()
        for number in range(self.steps):
            found = await sums(number, _query(gradients, asked))
            for group, node in enumerate(asked):
                node.sums = [party[:, [group, len(asked) + group]] for party in found]
                self._refuse_other_totals(node)
            for small, large, parent in siblings:
                large.sums = [whole - part for whole, part in zip(parent.sums, small.sums, strict=True)]
            for node, split in zip(fresh, self._best(fresh, gradients, allowed), strict=True):
                if split is None:
                    self._leaf(growing, node, gradients)
                else:
                    waiting.append((node, split))
            chosen, waiting = self._chosen(waiting)
            wanted = [[split.record for _, split in chosen if split.party == party]
                      for party in range(len(self.columns))]  # fmt: skip
            unknown = {party: forest.unknown(party, records) for party, records in enumerate(wanted)}
            if new := {party: records for party, records in unknown.items() if records}:
                await sides(number, new)
            siblings = [self._divide(forest, growing[node.output], node, split, gradients) for node, split in chosen]
            fresh, asked = [child for small, large, _ in siblings for child in (small, large)], [s[0] for s in siblings]
            if not fresh:
                break
        for node in (*fresh, *(node for node, _ in waiting)):
            self._leaf(growing, node, gradients)
        return [tree.done() for tree in growing]

    def _chosen(self, waiting: list[_Wanting]) -> tuple[list[_Wanting], list[_Wanting]]:
        """Nodes to split now, with their splits; and the others."""
        if not self.best_first:
            return waiting, []
        first = dict[int, _Wanting]()
        for node, best in waiting:
            if node.output not in first or best.split.gain > first[node.output][1].split.gain:
                first[node.output] = node, best
        chosen = list(first.values())
        return chosen, [each for each in waiting if each[0] is not first[each[0].output][0]]

    def _best(
        self, level: Sequence[_Node], gradients: Gradients, allowed: Sequence[NDArray[np.bool_]]
    ) -> list[_Best | None]:
        """The best split of each node over all parties; the first party's among equals."""
        best: list[_Best | None] = [None] * len(level)
        steps = np.array([[gradients.step[node.output], gradients.second_step[node.output]] for node in level])
        bounds = Bounds(np.array([node.low for node in level]), np.array([node.high for node in level]))
        rows = np.array([len(node.rows) for node in level])
        for party, columns in enumerate(self.columns):
            found = np.stack([node.sums[party] for node in level], axis=1)  # (bins, nodes, 2)
            first, second = found[..., 0] * steps[:, 0], found[..., 1] * steps[:, 1]
            for place, split in enumerate(columns.best(first, second, rows, self.rules, bounds, allowed[party])):
                known = best[place]
                if split is not None and (known is None or split.gain > known.split.gain):
                    best[place] = _Best(party, split)
        return best

    def _divide(
        self, forest: Forest, tree: _Growing, node: _Node, best: _Best, gradients: Gradients
    ) -> tuple[_Node, _Node, _Node]:
        """The child with fewer rows, the other, and the node."""
        record = forest.records[best.party][best.record]
        left = forest.side(best.party, record)[gradients.rows[node.rows]]
        numbers = tree.split(node.number, best.party, record, best.split.gain)
        parts = [node.rows[left], node.rows[~left]]
        totals = [_total(gradients, node.output, rows) for rows in parts]
        if self._differ(self.columns[best.party].chosen(node.sums[best.party], best.split), totals[0]):
            raise Inconsistent(best.party, "Sides", "the rows that its sums were over", "others")
        children = [
            _Node(node.output, number, rows, total, low=node.low, high=node.high)
            for number, rows, total in zip(numbers, parts, totals, strict=True)
        ]
        if rising := self.columns[best.party].columns[best.split.column].rising:
            middle = float(np.mean([self._value(child, gradients) for child in children]))
            below, above = children if rising > 0 else reversed(children)
            below.high, above.low = min(below.high, middle), max(above.low, middle)
        small, large = sorted(children, key=lambda child: len(child.rows))
        return small, large, node

    def _refuse_other_totals(self, node: _Node) -> None:
        """Raises Inconsistent unless each column's sums add up to the node's total, as every row is in one bin."""
        for party, columns in enumerate(self.columns):
            if self._differ(columns.totals(node.sums[party]), node.total):
                raise Inconsistent(party, "Sums", "the same total over the bins of every column", "another")

    def _differ(self, found: Whole, own: Whole) -> bool:
        """True if totals over bins differ from one's own by more than the noise of up to 256 bins and one sum a step
        explains.
        """
        return bool((np.abs(found - own) > _TAIL * self.noise * math.sqrt(256 * self.steps)).any())

    def _leaf(self, growing: Sequence[_Growing], node: _Node, gradients: Gradients) -> None:
        growing[node.output].value[node.number] = self.rate * self._value(node, gradients)

    def _value(self, node: _Node, gradients: Gradients) -> float:
        first = node.total[0] * gradients.step[node.output]
        second = node.total[1] * gradients.second_step[node.output]
        return float(np.clip(self.rules.leaf(np.array(first), np.array(second)), node.low, node.high))


class Inconsistent(Exception):  # what a party sent contradicts itself
    """A party's message contradicts an earlier one."""

    def __init__(self, party: int, kind: str, expected: str, got: str) -> None:
        super().__init__(f"party {party}, {kind}: {got} where {expected} was expected")
        self.party, self.kind, self.expected, self.got = party, kind, expected, got


@dataclass(frozen=True)
class _Best:
    party: int
    split: Split

    @property
    def record(self) -> AskedSplit:
        return AskedSplit.of(self.split.column, self.split.left)


_Siblings = tuple[_Node, _Node, _Node]
_Wanting = tuple[_Node, _Best]


def _total(gradients: Gradients, output: int, rows: NDArray[np.int64]) -> Whole:
    return np.array([gradients.first[rows, output].sum(), gradients.second[rows, output].sum()])


def _query(gradients: Gradients, asked: Sequence[_Node]) -> Query:
    places = np.full(gradients.first.shape, -1)
    for group, node in enumerate(asked):
        places[node.rows, node.output] = group
    return Query(gradients, places, len(asked))
