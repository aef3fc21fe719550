"""A party's shape functions: one step per bin, grown from sums over its bins; and their points.

A column of numbers is cut greedily into at most `leaves` runs of neighbouring bins, by the gain of their Newton steps
(Chen and Guestrin 2016), and each run takes its step -G / (H + l2). Every bin of words and that of missing values takes
its own step. Where the party declares a direction, each step is followed by a projection onto monotone functions:
isotonic regression with the Hessians as weights (Barlow and Brunk 1972).

Pairs of columns are further binned columns: cells of two coarse columns. A column is cut into at most COARSE groups of
neighbouring bins (words: bins by frequency) with about equal numbers of training rows. Cells with fewer than `least`
training rows share one bin per pair; if that has too few, it joins the most frequent cell: sums over few rows would
reveal their summands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor, nn

from colonnade.client.training.bins import BinnedTable, directions
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import REASONS, Local, Reason, Reference, lowest
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.scale import Columns
from colonnade.common.encryption.linear import Bins
from colonnade.common.encryption.messages import BINS
from colonnade.common.errors import ContractError
from colonnade.common.protocols.additive import STEP, Config

Floats = NDArray[np.float64]

COARSE = 8
_MOST = BINS // (2 * COARSE**2)  # pairs of a party

Codes = NDArray[np.unsignedinteger]


class PairBins:
    """Pairs of a table's columns, fitted to the training rows once and kept in the state.

    Attributes:
        columns: numbers of the two columns of each pair.
        groups: group of every bin of each column, int64 (columns, bins); -1 where there is no bin.
        cells: bin of a pair by the first column's group times COARSE plus the second's, int64 (pairs, cells).
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
    """The group of each bin, in bin order."""
    before = np.cumsum(counts) - counts / 2  # the middle of each
    found = (before * COARSE / max(counts.sum(), 1)).astype(np.int64).clip(0, COARSE - 1)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _cells(counts: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """The bin of each cell; cells without training rows have that of rare ones."""
    often = counts >= least
    if not often.any():
        return np.zeros(len(counts), np.int64)
    found = np.where(often, np.cumsum(often) - 1, often.sum())
    if counts[~often].sum() < least:
        found[~often] = found[counts.argmax()]
    return found.astype(np.int64)


class ShapeBins:
    """The bins of a party's shape functions: its columns', then its pairs'.

    Attributes:
        pairs: numbers of the two columns of each pair.
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
        return sum(self.counts)

    def cells(self, pair: int) -> dict[str, Any]:
        """For both columns of a pair the group of each bin, and the pair's bin by cell: group COARSE + group."""
        groups = [self._pairs.groups[place][: self.table.counts[place]].tolist() for place in self.pairs[pair]]
        return {"groups": groups, "cells": self._pairs.cells[pair].tolist()}

    def one_hot(self, rows: Tensor) -> Bins:
        """Matrix of rows, int64 (m,), for sums under encryption, as `BinnedTable.one_hot`."""
        return Bins(self.codes[rows.numpy()], self.counts)

    def scores(self, values: Floats, rows: Tensor) -> Floats:
        """Sums of shape functions, (bins, scores), at rows by number, int64 (m,): (m, scores)."""
        found, first = np.zeros((len(rows), values.shape[1])), 0
        codes = self.codes[rows.numpy()]
        for column, count in enumerate(self.counts):
            found += values[first : first + count][codes[:, column]]
            first += count
        return found


class ShapeSum(Local):
    """Scores by a party's shape functions, for rows of its unencoded table.

    Args:
        unit: points per 1 of the score; parts and reasons are in points.

    Attributes:
        values: float64 (bins, scores).
        names: those of columns, and `one x other` for pairs.
    """

    def __init__(self, ctx: ClientContext, bins: ShapeBins, values: Floats, unit: float = 1.0) -> None:
        super().__init__(nn.Identity())
        self.bins, self.values, self._points = bins, values, unit * values
        columns = self.bins.table.names
        self.names = [*columns, *(f"{columns[one]} x {columns[other]}" for one, other in self.bins.pairs)]
        self._first = np.cumsum([0, *self.bins.counts])
        self._train = ctx.schedule.partition.train

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:  # noqa: ARG002  # the interface's
        """Row numbers, int64 (rows,) -> float32 (rows, scores)."""
        return torch.from_numpy(self.bins.scores(self.values, rows)).float()

    def parts(self, rows: Tensor) -> Floats:
        """Points of each column and pair at rows, less their mean over the training rows.

        Returns float64 (rows, columns and pairs, scores).
        """
        codes = self.bins.codes[rows.numpy()].astype(np.int64)
        means = np.stack([self._means(number) for number in range(len(self.names))])
        found: Floats = self._points[codes + self._first[:-1]] - means
        return found

    def reasons(
        self, rows: Tensor, most: int = REASONS, reference: Reference = "mean", score: int = 0
    ) -> list[list[Reason]]:
        """The columns and pairs that lower a row's points most, compared with their mean or best.

        Returns for each row at most `most` of them and their contributions below 0, lowest first.
        """
        parts = self.parts(rows)[:, :, score]
        if reference == "best":
            ends = zip(self._first, self._first[1:], strict=False)
            best = [self._points[first:last, score].max() for first, last in ends]
            means = [self._means(number)[score] for number in range(len(self.names))]
            parts = parts - (np.array(best) - np.array(means))
        return lowest(parts, self.names, most)

    def explained(self, ctx: ClientContext) -> dict[str, Any]:  # noqa: ARG002  # the interface's
        return {kind: sorted(each, key=lambda one: -one["importance"]) for kind, each in self.described().items()}

    def described(self) -> dict[str, Any]:
        """Every shape function as JSON: each bin's contribution to the scores, and its values."""
        return {"columns": list(self._columns()), "pairs": list(self._pairs())}

    def _columns(self) -> Iterator[dict[str, Any]]:
        for number, column in enumerate(self.bins.table.columns):
            values: dict[str, Any] = {"words": list(column.words), "others": column.other}
            if column.cuts is not None:
                values = {"cuts": column.cuts.tolist(), **({"special": column.special} if column.special else {})}
            yield {"column": column.name, **values, "missing": column.missing, **self._said(number)}

    def _pairs(self) -> Iterator[dict[str, Any]]:
        single = len(self.bins.table.columns)
        for number, (one, other) in enumerate(self.bins.pairs):
            names = [self.names[one], self.names[other]]
            yield {"columns": names, **self.bins.cells(number), **self._said(single + number)}

    def _said(self, number: int) -> dict[str, Any]:
        """Points by bin, their mean over the training rows, and the mean distance from it."""
        points, mean = self._points[self._first[number] : self._first[number + 1]], self._means(number)
        shares = self._shares(number)
        return {
            "importance": float((shares[:, None] * np.abs(points - mean)).sum(0).mean()),
            "mean": mean.tolist(),
            "points": points.tolist(),
        }

    def _means(self, number: int) -> Floats:
        found: Floats = self._shares(number) @ self._points[self._first[number] : self._first[number + 1]]
        return found

    def _shares(self, number: int) -> Floats:
        """Shares of the training rows, by bin."""
        codes = self.bins.codes[self._train.numpy(), number]
        return np.bincount(codes, minlength=self.bins.counts[number]) / max(len(codes), 1)


_LEAST_GAIN = 1e-9
_OF_PAIRS = 20.0  # added to the sum of Hessians of a pair's cell, besides l2: cells are many
_TINY = 1e-12  # Hessians of no rows: their gradients are 0 too


class Shapes:
    """Shape functions in the party's state, and the newest step, which is undone unless the server counts it."""

    def __init__(self, ctx: ClientContext, bins: int, scores: int) -> None:
        self.values = ctx.state.keep("shapes", lambda: torch.zeros(bins, scores, dtype=torch.float64))
        self._step = ctx.state.keep("step", lambda: torch.zeros(bins, scores, dtype=torch.float64))
        self._rounds = ctx.state.keep("rounds of steps", lambda: {"counted": 0, "taken": 0})

    @property
    def settled(self) -> bool:
        """False while it is unknown whether the newest step counts."""
        return self._rounds["counted"] == self._rounds["taken"]

    def take(self, round: int, step: Floats) -> None:
        """Takes a step, (bins, scores), in multiples of STEP."""
        self._step[:] = torch.from_numpy(step)
        self.values += self._step
        self._rounds["taken"] = round

    def settle(self, round: int) -> None:
        """Keeps or undoes the newest step; `round` is the newest that the server has counted, 0 for none.

        Raises ContractError if the server counts a step that was not taken.
        """
        if round not in self._rounds.values():
            expected = " or ".join(map(str, sorted(set(self._rounds.values()))))
            raise ContractError(SERVER, "Counted", "rounds", f"for us {expected}", str(round))
        if round != self._rounds["taken"]:
            self.values -= self._step
        self._step.zero_()
        self._rounds.update(counted=round, taken=round)


class Growth:
    """Steps of the shape functions of a table's columns. Raises ConfigError as `directions`."""

    def __init__(self, ctx: ClientContext, bins: ShapeBins, cfg: Config) -> None:
        self._cfg, self._columns = cfg, bins.table.columns
        self._first = np.cumsum([0, *bins.counts])
        self._ordered = [number for number, column in enumerate(self._columns) if column.cuts is not None]
        self._directions = directions(ctx, self._columns)
        self._paired = [not self._directions.keys() & set(pair) for pair in bins.pairs]

    def step(self, values: Floats, gradients: Floats, hessians: Floats, rate: float) -> Floats:
        """The next step of every bin in multiples of STEP; arguments and result (bins, scores)."""
        wanted = -gradients / np.maximum(hessians + self._cfg.l2, _TINY)
        self._smooth(wanted, gradients, hessians)
        self._pair(wanted, gradients, hessians)
        moved = values + rate * wanted
        for column, sign in self._directions.items():
            at = self._numbers(column)
            for score in range(values.shape[1]):
                weights = np.maximum(hessians[at, score], _TINY)
                moved[at, score] = isotonic_regression(moved[at, score], weights=weights, increasing=sign > 0).x
        grid: Floats = np.rint(moved / STEP) * STEP - values
        return grid

    def _numbers(self, column: int) -> slice:
        """The bins of a column's numbers, without that of missing values."""
        return slice(self._first[column], self._first[column] + self._columns[column].values)

    def _pair(self, wanted: Floats, gradients: Floats, hessians: Floats) -> None:
        """Keeps the steps of the pairs that gain most, and none of columns with a direction."""
        starts, gains = self._first[len(self._columns) :], list[float]()
        for allowed, (first, last) in zip(self._paired, pairwise(starts), strict=True):
            g, weights = gradients[first:last], hessians[first:last] + self._cfg.l2 + _OF_PAIRS
            wanted[first:last] = -g / weights
            gains.append(float((g * g / weights).sum()) if allowed else 0.0)
        best = sorted(range(len(gains)), key=lambda pair: -gains[pair])[: self._cfg.pairs]
        for pair, gain in enumerate(gains):
            if pair not in best or not gain:
                wanted[starts[pair] : starts[pair + 1]] = 0

    def _smooth(self, wanted: Floats, gradients: Floats, hessians: Floats) -> None:
        """Replaces the steps of each run of number bins by one step."""
        if not self._ordered:
            return
        places = [self._numbers(column) for column in self._ordered]
        counts, scores = np.array([place.stop - place.start for place in places]), wanted.shape[1]
        g = np.zeros((len(places) * scores, counts.max()))
        h = np.zeros_like(g)
        for number, (place, count) in enumerate(zip(places, counts, strict=True)):
            g[number * scores : (number + 1) * scores, :count] = gradients[place].T
            h[number * scores : (number + 1) * scores, :count] = hessians[place].T
        steps = runs(g, h, counts.repeat(scores), self._cfg)
        for number, (place, count) in enumerate(zip(places, counts, strict=True)):
            wanted[place] = steps[number * scores : (number + 1) * scores, :count].T


def runs(g: Floats, h: Floats, counts: NDArray[np.integer], cfg: Config) -> Floats:
    """One step per run of neighbouring bins, for each column.

    `g` and `h` are sums over the columns' bins, (columns, bins), with zeros beyond a column's count.
    """
    zero = np.zeros((len(g), 1))
    sums, weights = (np.concatenate([zero, np.cumsum(each, axis=1)], axis=1) for each in (g, h))
    at = np.arange(sums.shape[1])[None]
    start, end = np.zeros(sums.shape, np.int64), np.broadcast_to(counts[:, None], sums.shape).copy()

    def between(first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[Floats, Floats]:
        one, other = (
            np.take_along_axis(each, last, 1) - np.take_along_axis(each, first, 1) for each in (sums, weights)
        )
        return one, other

    here = np.broadcast_to(at, sums.shape)
    for _ in range(cfg.leaves - 1):
        (gl, hl), (gr, hr) = between(start, here), between(here, end)
        allowed = (at > start) & (at < end) & (hl >= cfg.min_hessian) & (hr >= cfg.min_hessian)
        gain = np.where(allowed, _score(gl, hl, cfg.l2) + _score(gr, hr, cfg.l2) - _score(gl + gr, hl + hr, cfg.l2), 0)
        best = gain.argmax(axis=1, keepdims=True)
        cut = np.take_along_axis(gain, best, 1) > _LEAST_GAIN
        same = (start == np.take_along_axis(start, best, 1)) & (end == np.take_along_axis(end, best, 1)) & cut
        start, end = np.where(same & (at >= best), best, start), np.where(same & (at <= best), best, end)
    # A bin b lies between the places b and b + 1: it is in the run that begins where that of place b does, or at b.
    first = np.where(start[:, :-1] < end[:, :-1], start[:, :-1], at[:, :-1])
    last = np.where(start[:, 1:] < end[:, 1:], end[:, 1:], at[:, 1:])
    g_run, h_run = between(first, last)
    return -g_run / np.maximum(h_run + cfg.l2, _TINY)


def _score(g: Floats, h: Floats, l2: float) -> Floats:
    return g * g / np.maximum(h + l2, _TINY)
