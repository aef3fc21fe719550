"""Trees against scikit-learn's grower on the same bins and gradients, to the split."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower

from colonnade.server.training.trees.forest import AskedSplit, Forest, Tree
from colonnade.server.training.trees.grower import Gradients, Grower, Query
from colonnade.server.training.trees.splits import ColumnShape, PartyColumns, Rules, Whole

STEP = 2.0**-12  # sums of as many gradients are exact in both
Codes = NDArray[np.int64]


class Party:
    """Bins of some columns, (rows, columns)."""

    def __init__(self, codes: Codes, columns: Sequence[ColumnShape]) -> None:
        self.codes, self.columns = codes, columns
        first = np.cumsum([0] + [column.bins for column in columns])[:-1]
        self._one_hot = np.zeros((sum(column.bins for column in columns), len(codes)), np.int64)
        for number in range(codes.shape[1]):
            self._one_hot[codes[:, number] + first[number], np.arange(len(codes))] = 1

    def sums(self, vectors: Whole) -> Whole:
        return self._one_hot @ vectors

    def sides(self, record: AskedSplit) -> NDArray[np.uint8]:
        left = np.unpackbits(np.frombuffer(record.left, np.uint8)).astype(bool)
        return np.packbits(left[self.codes[:, record.column]])


def grown(
    parties: Sequence[Party], gradients: Gradients, depth: int, rules: Rules, leaves: int = 0, **sampled: object
) -> tuple[Forest, list[Tree], int]:
    forest, exchanges = Forest(len(parties), len(parties[0].codes)), 0

    async def sums(_level: int, query: Query) -> list[Whole]:
        nonlocal exchanges
        exchanges += 1
        return [party.sums(query.vectors(0, query.rows)) for party in parties]

    async def sides(_level: int, wanted: Mapping[int, Sequence[AskedSplit]]) -> None:
        for number, records in wanted.items():
            forest.learn(number, records, np.stack([parties[number].sides(record) for record in records]))

    columns, steps = [PartyColumns(party.columns) for party in parties], leaves - 1 if leaves else depth
    grower = Grower(columns, rules, steps, 1.0, bool(leaves))
    trees = asyncio.run(grower.grow(forest, gradients, sums, sides, **sampled))
    return forest, trees, exchanges


@pytest.mark.parametrize("rising", [1, -1])
def test_leaves_follow_the_directions_of_columns(rising: int) -> None:
    draws = np.random.default_rng(0)
    codes = draws.integers(9, size=(900, 3))
    codes[:, 0] = np.where(draws.random(900) < 0.2, 9, codes[:, 0])  # missing
    first = np.rint((codes[:, 0] % 4 - codes[:, 1] % 3 + draws.normal(size=900)) / STEP / 4).astype(np.int64)
    rules, depth = Rules(l2=1.0, gamma=0.0, least=1e-3), 5
    shape = [ColumnShape(10, missing=True, rising=rising), ColumnShape(9, rising=-rising), ColumnShape(9)]
    forest, (tree,), _ = grown([Party(codes, shape)], of(first, np.full(900, int(1 / STEP))), depth, rules)
    asked = list(forest.records[0])
    assert {record.column for record in asked} == {0, 1, 2}
    for column, way in ((0, rising), (1, -rising)):
        along = np.repeat(codes[:100], 9, axis=0)
        along[:, column] = np.tile(np.arange(9), 100)
        there = Party(along, shape)
        sides = [np.unpackbits(there.sides(record), count=900).astype(bool) for record in asked]
        steps = np.diff(tree.apply(lambda _, record, sides=sides: sides[record], 900).reshape(100, 9), axis=1) * way
        assert (steps >= 0).all() and (steps > 0).any()


def of(first: Codes, second: Codes) -> Gradients:
    if first.ndim == 1:
        first, second = first[:, None], second[:, None]
    steps = np.full(first.shape[1], STEP)
    return Gradients(np.arange(len(first)), first, second, steps, steps)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("leaves", [0, 11])
def test_a_tree_is_scikit_learns(seed: int, missing: bool, constant: bool, leaves: int) -> None:
    draws = np.random.default_rng(seed)
    rows, columns, bins = 700, 5, int(draws.integers(3, 30))
    codes = draws.integers(bins, size=(rows, columns))
    if missing:
        codes[draws.random((rows, columns)) < 0.15] = bins  # the last bin
    y = np.sin(codes[:, 0]) + (codes[:, 1] == bins) + draws.normal(size=rows)
    first = np.rint(y / STEP / 4).astype(np.int64)
    second = np.full(rows, int(1 / STEP)) if constant else draws.integers(1, int(0.25 / STEP), rows)
    rules, depth = Rules(l2=float(draws.choice([0.0, 1.0])), gamma=0.0, least=1e-3), 4
    shape = [ColumnShape(bins + missing, missing=missing)] * columns
    parties = [Party(codes[:, :2], shape[:2]), Party(codes[:, 2:], shape[2:])]
    forest, (tree,), exchanges = grown(parties, of(first, second), depth, rules, leaves)
    hessians = np.ones(1, np.float32) if constant else (second * STEP).astype(np.float32)
    binned = np.asfortranarray(np.where(codes == bins, 255, codes).astype(np.uint8))
    theirs = TreeGrower(
        binned, (first * STEP).astype(np.float32), hessians, max_depth=None if leaves else depth, min_samples_leaf=1,
        max_leaf_nodes=leaves or None, l2_regularization=rules.l2, n_bins=256, shrinkage=1.0,
        n_bins_non_missing=np.full(columns, bins, np.uint32), has_missing_values=np.full(columns, missing, np.uint8),
    )  # fmt: skip
    theirs.grow()
    expected = np.zeros(rows)
    for leaf in theirs.finalized_leaves:
        expected[leaf.sample_indices] = leaf.value
    assert len(theirs.finalized_leaves) == (tree.party < 0).sum()
    np.testing.assert_allclose(tree.apply(forest.side, rows), expected, rtol=1e-6, atol=1e-7)
    assert exchanges <= (leaves - 1 if leaves else depth)


@pytest.mark.parametrize(("few", "supported"), [(9, False), (10, True)])
def test_words_of_few_rows_have_no_order_and_go_right(few: int, supported: bool) -> None:
    """Three words: many rows that rise, many that fall, and some that fall even more."""
    codes = np.repeat([0, 1, 2], [50, 50, few])[:, None]
    first = np.repeat([1000, -1000, -2000], [50, 50, few])
    party = Party(codes, [ColumnShape(3, ordered=False)])
    forest, _, _ = grown([party], of(first, np.full(len(first), 4096)), 1, Rules(1.0, 0.0, 1.0))
    left = set(codes[forest.side(0, 0), 0].tolist())
    assert left == ({1, 2} if supported else {1})
