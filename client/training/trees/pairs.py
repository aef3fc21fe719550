"""Pairs of a party's columns as further columns of bins: cells of two coarse columns.

A column is cut into at most COARSE groups of neighbouring bins (of words: of bins by frequency) that hold about as many
training rows each. A cell that holds fewer than `least` training rows shares a bin with the others of its pair that do,
and if these are fewer together, with the most frequent cell: sums over few rows would show what they are sums of.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.client.training.trees.bins import BinnedTable
from colonnade.common.encryption.linear import Bins
from colonnade.common.encryption.messages import BINS

COARSE = 8
_MOST = BINS // (2 * COARSE**2)  # pairs of a party

Codes = NDArray[np.unsignedinteger]
Floats = NDArray[np.float64]


class PairBins:
    """The pairs of a table's columns, which are fitted to the training rows once and kept in the state.

    Attributes:
        columns: numbers of the two columns of each pair.
        groups: of every bin of each column, int64 (columns, bins); -1 where there is none.
        cells: bin of the pair, by group of the one column times COARSE, plus group of the other, int64 (pairs, cells).
    """

    def __init__(self, ctx: ClientContext, table: BinnedTable, least: int) -> None:
        self.columns = list(combinations(range(len(table.columns)), 2))
        if len(self.columns) > _MOST:
            ctx.warn(f"pairs: the first {_MOST} of {len(self.columns)} are looked at")
            del self.columns[_MOST:]
        wide, deep = max(table.counts), max(len(self.columns), 1)
        self.groups = ctx.state.keep("coarse", lambda: torch.full((len(table.columns), wide), -1, dtype=torch.int64))
        self.cells = ctx.state.keep("cells", lambda: torch.full((deep, COARSE**2), -1, dtype=torch.int64))
        if self.columns and bool((self.groups < 0).all()):
            self._fit(table, ctx.schedule.partition.train.numpy(), least)
        self.counts = [int(cells.max()) + 1 for cells in self.cells[: len(self.columns)]]

    def codes(self, table: BinnedTable) -> Codes:
        """The bin of every row in each pair, (rows, pairs)."""
        groups = np.stack(
            [self.groups[place].numpy()[table.codes[:, place]] for place in range(len(table.columns))], axis=1
        )
        found = np.empty((len(groups), len(self.columns)), np.uint8)
        for number, (one, other) in enumerate(self.columns):
            found[:, number] = self.cells[number].numpy()[groups[:, one] * COARSE + groups[:, other]]
        return found

    def _fit(self, table: BinnedTable, train: NDArray[np.int64], least: int) -> None:
        codes = table.codes[train]
        for place, column in enumerate(table.columns):
            counts = np.bincount(codes[:, place], minlength=column.count)
            order = np.arange(column.count) if column.cuts is not None else np.argsort(-counts, kind="stable")
            self.groups[place, torch.from_numpy(order)] = torch.from_numpy(_groups(counts[order]))
        coarse = np.take_along_axis(self.groups.numpy(), codes.T.astype(np.int64), axis=1)
        for number, (one, other) in enumerate(self.columns):
            counts = np.bincount(coarse[one] * COARSE + coarse[other], minlength=COARSE**2)
            self.cells[number] = torch.from_numpy(_cells(counts, least))


def _groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The group of each bin, in their order."""
    before = np.cumsum(counts) - counts / 2  # the middle of each
    found = (before * COARSE / max(counts.sum(), 1)).astype(np.int64).clip(0, COARSE - 1)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _cells(counts: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """The bin of each cell; cells that no training row is in have that of rare ones."""
    often = counts >= least
    if not often.any():
        return np.zeros(len(counts), np.int64)
    found = np.where(often, np.cumsum(often) - 1, often.sum())
    if counts[~often].sum() < least:
        found[~often] = found[counts.argmax()]
    return found.astype(np.int64)


class ShapeBins:
    """The bins of which a party has shape functions: its columns', then its pairs'.

    Attributes:
        table: of the columns alone.
        pairs: the numbers of the two columns of each pair.
        codes: bin of every row, (rows, columns and pairs).
        counts: bins of each column and pair.
    """

    def __init__(self, table: BinnedTable, pairs: PairBins | None = None) -> None:
        self.table, self.pairs, self.codes, self.counts = table, list[tuple[int, int]](), table.codes, table.counts
        if pairs is not None:
            self._pairs, self.pairs, self.counts = pairs, pairs.columns, (*table.counts, *pairs.counts)
            self.codes = np.concatenate([table.codes, pairs.codes(table)], axis=1)

    @property
    def total(self) -> int:
        """Bins of all."""
        return sum(self.counts)

    def cells(self, pair: int) -> dict[str, Any]:
        """Of both columns of a pair the group of each bin, and the pair's bin of each cell: group COARSE + group."""
        groups = [self._pairs.groups[place][: self.table.counts[place]].tolist() for place in self.pairs[pair]]
        return {"groups": groups, "cells": self._pairs.cells[pair].tolist()}

    def one_hot(self, rows: Tensor) -> Bins:
        """The matrix of these rows, int64 (m,), for sums under encryption, as `BinnedTable.one_hot` has it."""
        return Bins(self.codes[rows.numpy()], self.counts)

    def scores(self, values: Floats, rows: Tensor) -> Floats:
        """What shape functions, (bins, scores), add up to at rows by number, int64 (m,): (m, scores)."""
        found, first = np.zeros((len(rows), values.shape[1])), 0
        codes = self.codes[rows.numpy()]
        for column, count in enumerate(self.counts):
            found += values[first : first + count][codes[:, column]]
            first += count
        return found
