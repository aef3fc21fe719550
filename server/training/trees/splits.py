"""The best split of every node, from sums of gradients and Hessians over each column's bins.

Gains and leaves are those of XGBoost (Chen and Guestrin 2016, Eqs. 5 to 7): with G and H the sums over a node's rows,

    score(G, H) = G^2 / (H + l2),    gain = score(left) + score(right) - score(node),    leaf = -G / (H + l2).

Ordered columns are cut between two bins, and rows without a value go to the side with the larger gain. The bins of a
column of words, with missing values as a word, are ordered by G / (H + l2) in the node before they are cut (Fisher
1958). Bins with fewer than SUPPORT rows in the node, as H estimates them, are not ordered and go right, as in
scikit-learn: the order tells the column's owner which of its bins have more of a class, and for a bin of one row that
is its label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SUPPORT = 10  # rows of a bin of words, at least, that has an order
_SMALLEST = 1e-12  # of a node's own score: a smaller gain is a rounding error


@dataclass(frozen=True)
class ColumnShape:
    """What the server knows of a column.

    Args:
        bins: number of bins, with the last one for missing values if `missing`.
        ordered: False for words.
        rising: 1 if predictions may only rise with the column, -1 if they may only fall, 0 for both.
    """

    bins: int
    ordered: bool = True
    missing: bool = False
    rising: int = 0


@dataclass(frozen=True)
class Rules:
    """Which splits are taken.

    `l2` is added to every sum of Hessians, `gamma` is the least gain, `least` the smallest sum of Hessians on either
    side.
    """

    l2: float
    gamma: float
    least: float

    def leaf(self, gradient: Floats, hessian: Floats) -> Floats:
        """-G / (H + l2), and 0 where both are 0."""
        below = np.asarray(hessian + self.l2)
        return np.divide(-gradient, below, out=np.zeros_like(below), where=below > 0)

    def score(self, gradient: Floats, hessian: Floats) -> Floats:
        """G^2 / (H + l2), and 0 where both are 0."""
        return -gradient * self.leaf(gradient, hessian)

    def bounded(self, gradient: Floats, hessian: Floats, leaf: Floats) -> Floats:
        """The score with a given leaf: -(2 G leaf + (H + l2) leaf^2)."""
        return -leaf * (2 * gradient + (hessian + self.l2) * leaf)


@dataclass(frozen=True)
class Split:
    """A split of a node; `left` marks the bins whose rows go left, bool (bins,)."""

    gain: float
    column: int
    left: NDArray[np.bool_]


class Bounds:
    """Bounds of the leaves below each node, float64 (nodes,), which keep monotone columns monotone."""

    def __init__(self, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high

    @classmethod
    def none(cls, nodes: int) -> Bounds:
        return cls(np.full(nodes, -np.inf), np.full(nodes, np.inf))


class PartyColumns:
    """Finds splits among one party's columns. Sums of all their bins are concatenated in column order."""

    def __init__(self, columns: Sequence[ColumnShape]) -> None:
        self.columns = tuple(columns)
        bins = np.array([column.bins for column in columns], np.int64)
        self.bins = int(bins.sum())
        first = np.cumsum(bins) - bins
        self._widest = int(bins.max(initial=1))
        there = np.arange(self._widest) < bins[:, None]  # (columns, widest)
        self._places = np.where(there, first[:, None] + np.arange(self._widest), self.bins)
        self._ordered = np.array([column.ordered for column in columns], bool)
        self._lost = np.array([column.missing and column.ordered for column in columns], bool)
        self._rising = np.array([column.rising for column in columns], np.int64)
        self._last = np.where(self._lost, first + bins - 1, self.bins)
        self._values = bins - self._lost  # bins that are cut between
        self._starts = first

    def totals(self, sums: Whole) -> Whole:
        """Sums over each column's bins: (bins, v) -> (columns, v)."""
        return np.add.reduceat(sums, self._starts, axis=0) if self.bins else sums[:0]

    def chosen(self, sums: Whole, split: Split) -> Whole:
        """Sums over the left side of a split: (bins, v) -> (v,)."""
        first = self._starts[split.column]
        found: Whole = sums[first : first + len(split.left)][split.left].sum(axis=0)
        return found

    def best(
        self,
        gradients: Floats,
        hessians: Floats,
        rows: NDArray[np.int64],
        rules: Rules,
        bounds: Bounds,
        allowed: NDArray[np.bool_],
    ) -> list[Split | None]:
        """The best split of each node; None where none gains enough.

        Args:
            gradients, hessians: sums over each bin, (bins, nodes).
            rows: rows of each node, (nodes,).
            allowed: columns considered, bool (columns,).
        """
        nodes = gradients.shape[1]
        if not self.bins:
            return [None] * nodes
        nothing = np.zeros((1, nodes))
        g = np.concatenate([gradients, nothing])[self._places].transpose(2, 0, 1)  # (nodes, columns, widest)
        h = np.concatenate([hessians, nothing])[self._places].transpose(2, 0, 1)
        orders, ends = self._orders(g, h, rows, rules)
        g, h = np.take_along_axis(g, orders, 2), np.take_along_axis(h, orders, 2)
        lost = self._lost
        lost_g = np.concatenate([gradients, nothing])[self._last].T  # (nodes, columns)
        lost_h = np.concatenate([hessians, nothing])[self._last].T
        total_g, total_h = g.sum(2), h.sum(2)
        cut = np.arange(self._widest)
        inside = (cut < ends[..., None]) & allowed[:, None]  # between two bins of values
        apart = (cut == self._values[:, None] - 1) & lost[:, None] & allowed[:, None]  # values left, missing right
        left_g, left_h = g.cumsum(2), h.cumsum(2)
        gains = [np.where(inside | apart, self._gains(left_g, left_h, total_g, total_h, rules, bounds), -np.inf)]
        if lost.any():  # missing values left
            with_lost = left_g + lost_g[..., None], left_h + lost_h[..., None]
            more = self._gains(*with_lost, total_g, total_h, rules, bounds)
            gains.append(np.where(inside & lost[:, None], more, -np.inf))
        scores = rules.score(total_g[:, 0], total_h[:, 0])
        both = np.stack(gains, axis=-1).reshape(nodes, -1)  # by column, cut and side
        found, shape = both.argmax(1), (len(self.columns), self._widest, len(gains))
        made: list[Split | None] = []
        for node, place in enumerate(found):
            gain = float(both[node, place])
            if not gain > rules.gamma + _SMALLEST * scores[node]:
                made.append(None)
                continue
            column, at, side = (int(each) for each in np.unravel_index(place, shape))
            if lost[column] and not lost_g[node, column] and not lost_h[node, column] and at < self._values[column] - 1:
                side = int(left_h[node, column, at] > total_h[node, column] - left_h[node, column, at])
            left = np.zeros(self.columns[column].bins, bool)
            left[orders[node, column, : at + 1]] = True
            if lost[column]:
                left[-1] = bool(side)
            made.append(Split(gain, column, left))
        return made

    def _orders(
        self, g: Floats, h: Floats, rows: NDArray[np.int64], rules: Rules
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The bins of each node and column in cutting order, (nodes, columns, widest), and the number of places between
        which cuts lie, (nodes, columns): for words, up to the last supported bin.
        """
        orders = np.broadcast_to(np.arange(self._widest), g.shape).copy()
        ends = np.broadcast_to(self._values - 1, g.shape[:2]).copy()
        words = np.flatnonzero(~self._ordered)
        if words.size:
            total = h[:, :1].sum(2, keepdims=True)
            supported = h[:, words] * rows[:, None, None] >= SUPPORT * total
            supported &= total > 0
            key = np.where(supported, -rules.leaf(g[:, words], h[:, words]), np.inf)
            orders[:, words] = np.argsort(key, axis=2, kind="stable")
            ends[:, words] = np.minimum(supported.sum(2), self._values[words] - 1)
        return orders, ends

    def _gains(
        self, left_g: Floats, left_h: Floats, total_g: Floats, total_h: Floats, rules: Rules, bounds: Bounds
    ) -> Floats:
        """Gains (nodes, columns, widest); -inf where a side is too small or a monotone direction is violated."""
        right_g, right_h = total_g[..., None] - left_g, total_h[..., None] - left_h
        kept = np.minimum(left_h, right_h) >= rules.least
        if not self._rising.any():
            gains = rules.score(left_g, left_h) + rules.score(right_g, right_h)
            gains -= rules.score(total_g, total_h)[..., None]
            return np.where(kept, gains, -np.inf)
        low, high = bounds.low[:, None, None], bounds.high[:, None, None]
        left, right = (np.clip(rules.leaf(*sums), low, high) for sums in ((left_g, left_h), (right_g, right_h)))
        whole = np.clip(rules.leaf(total_g, total_h), low[..., 0], high[..., 0])
        gains = rules.bounded(left_g, left_h, left) + rules.bounded(right_g, right_h, right)
        gains -= rules.bounded(total_g, total_h, whole)[..., None]
        return np.where(kept & ((right - left) * self._rising[:, None] >= 0), gains, -np.inf)
