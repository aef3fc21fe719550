"""A forest over columns of several parties; the owner of a node's column tells the side of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Sides = NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """A tree in arrays over its nodes, the root first.

    Args:
        output: index of the output that it adds to.
        party: owner of the node's record, int64 (nodes,); -1 for a leaf.
        record: index among its owner's records.
        children: left and right child, int64 (nodes, 2).
        value: leaf values, float64 (nodes,).
        gain: gains of splits, float64 (nodes,).
    """

    output: int
    party: NDArray[np.int64]
    record: NDArray[np.int64]
    children: NDArray[np.int64]
    value: NDArray[np.float64]
    gain: NDArray[np.float64]

    @property
    def depth(self) -> int:
        """Splits from the root to the farthest leaf."""
        depths = np.zeros(len(self.party), np.int64)
        for node in np.flatnonzero(self.party >= 0):  # a node comes before its children
            depths[self.children[node]] = depths[node] + 1
        return int(depths.max())

    def apply(self, side: Callable[[int, int], Sides], rows: int) -> NDArray[np.float64]:
        """Leaf values, float64 (rows,); `side(party, record)` returns whether each row goes left, bool (rows,)."""
        found = np.zeros(rows)
        waiting = [(0, np.arange(rows))]
        while waiting:
            node, here = waiting.pop()
            if self.party[node] < 0:
                found[here] = self.value[node]
                continue
            left = side(int(self.party[node]), int(self.record[node]))[here]
            waiting.append((int(self.children[node, 0]), here[left]))
            waiting.append((int(self.children[node, 1]), here[~left]))
        return found


@dataclass(frozen=True)
class AskedSplit:
    """A question to a party: whether a row's bin of a column is one of `left`, bool (bins,), packed into bytes."""

    column: int
    left: bytes

    @classmethod
    def of(cls, column: int, left: NDArray[np.bool_]) -> AskedSplit:
        return cls(column, np.packbits(left).tobytes())


class Forest:
    """Trees, the records of their splits, and the side of every common row at each record.

    It is a protocol's own state (common/run/state.py).
    """

    def __init__(self, parties: int, rows: int) -> None:
        self.rows = rows
        self.trees: list[Tree] = []
        self.records: list[dict[AskedSplit, int]] = [{} for _ in range(parties)]
        """Numbers of each party's records, in the order in which they were asked for."""
        self._sides: list[list[NDArray[np.uint8]]] = [[] for _ in range(parties)]  # packed, (bytes,) a record

    def unknown(self, party: int, records: Sequence[AskedSplit]) -> list[AskedSplit]:
        """The distinct records, in order, that the party was not asked for yet."""
        return [record for record in dict.fromkeys(records) if record not in self.records[party]]

    def learn(self, party: int, records: Sequence[AskedSplit], packed: NDArray[np.uint8]) -> None:
        """Adds new records, with the sides of all rows: uint8 (records, ceil(rows / 8))."""
        for record, bits in zip(records, packed, strict=True):
            self.records[party][record] = len(self._sides[party])
            self._sides[party].append(bits.copy())

    def side(self, party: int, record: int) -> Sides:
        """Whether each row goes left, bool (rows,)."""
        return np.unpackbits(self._sides[party][record], count=self.rows).astype(bool)

    def used(self, party: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """How often each of a party's records splits a node, (records,), and the sum of its gains, (records,)."""
        times, gains = np.zeros(len(self.records[party]), np.int64), np.zeros(len(self.records[party]))
        for tree in self.trees:
            here = tree.party == party
            np.add.at(times, tree.record[here], 1)
            np.add.at(gains, tree.record[here], tree.gain[here])
        return times, gains

    def values(self, tree: Tree) -> NDArray[np.float64]:
        """What a tree adds to the scores of all rows, float64 (rows,)."""
        return tree.apply(self.side, self.rows)

    def scores(self, start: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of `start`, (outputs,), and the trees' values: float64 (rows, outputs)."""
        found = np.tile(start, (self.rows, 1))
        for tree in self.trees:
            found[:, tree.output] += self.values(tree)
        return found

    def state(self) -> dict[str, Any]:
        """Tensors of all trees, records and sides."""
        ends = np.cumsum([len(tree.party) for tree in self.trees])
        joined = {
            name: torch.from_numpy(np.concatenate([getattr(tree, name) for tree in self.trees]))
            for name in ("party", "record", "children", "value", "gain")
        } if self.trees else {}  # fmt: skip
        return {
            "rows": self.rows,
            "ends": [int(end) for end in ends],
            "outputs": [tree.output for tree in self.trees],
            "nodes": joined,
            "records": [[[record.column, record.left.hex()] for record in party] for party in self.records],
            "sides": [
                torch.from_numpy(np.stack(party)) if party else torch.empty(0, -(-self.rows // 8), dtype=torch.uint8)
                for party in self._sides
            ],
        }

    def restore(self, saved: Any) -> None:
        """Restores what `state` returned. Raises ValueError if it has other parties."""
        if len(saved["records"]) != len(self.records):
            raise ValueError(f"a forest over {len(saved['records'])} parties")
        self.rows = saved["rows"]
        nodes = {name: tensor.numpy() for name, tensor in saved["nodes"].items()}
        firsts = [0, *saved["ends"]]
        self.trees = [
            Tree(output, **{name: array[first:end].copy() for name, array in nodes.items()})
            for output, first, end in zip(saved["outputs"], firsts, saved["ends"], strict=False)
        ]
        self.records = [
            {AskedSplit(column, bytes.fromhex(left)): number for number, (column, left) in enumerate(party)}
            for party in saved["records"]
        ]
        self._sides = [list(tensor.numpy().copy()) for tensor in saved["sides"]]
