"""A party's shape functions, one step a bin, and how they grow from the sums over its bins.

A column of numbers is cut into at most `leaves` runs of neighbouring bins, by the gain of Newton's step in them (Chen
and Guestrin 2016), greedily, and each run takes its step -G / (H + l2). Bins of words, and that of missing values,
take a step each. Where the party has declared a direction, the shape is projected on the functions that rise (or fall)
after every step, by isotonic regression with the Hessians as weights (Barlow and Brunk 1972).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from colonnade.client.training.context import ClientContext
from colonnade.client.training.trees.bins import directions
from colonnade.client.training.trees.pairs import ShapeBins
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ContractError
from colonnade.common.protocols.additive import STEP, Config

Floats = NDArray[np.float64]

_LEAST_GAIN = 1e-9
_OF_PAIRS = 20.0
"""Added to the sum of Hessians of a pair's cell, besides l2: cells are many."""
_TINY = 1e-12  # Hessians of no rows: their gradients are 0 too


class Shapes:
    """Shape functions in the party's state, and the newest step, which is undone if the server does not count it.

    Args:
        scores: of a row.
    """

    def __init__(self, ctx: ClientContext, bins: int, scores: int) -> None:
        self.values = ctx.state.keep("shapes", lambda: torch.zeros(bins, scores, dtype=torch.float64))
        self._step = ctx.state.keep("step", lambda: torch.zeros(bins, scores, dtype=torch.float64))
        self._rounds = ctx.state.keep("rounds of steps", lambda: {"counted": 0, "taken": 0})

    @property
    def settled(self) -> bool:
        """False if it is not known yet whether the newest step counts."""
        return self._rounds["counted"] == self._rounds["taken"]

    def take(self, round: int, step: Floats) -> None:
        """Takes a step, (bins, scores), in multiples of STEP."""
        self._step[:] = torch.from_numpy(step)
        self.values += self._step
        self._rounds["taken"] = round

    def settle(self, round: int) -> None:
        """Keeps or undoes the newest step. Raises ContractError if the server counts another than there was.

        Args:
            round: the newest of which the server has counted the step; 0 for none.
        """
        if round not in self._rounds.values():
            expected = " or ".join(map(str, sorted(set(self._rounds.values()))))
            raise ContractError(SERVER, "Counted", "rounds", f"for us {expected}", str(round))
        if round != self._rounds["taken"]:
            self.values -= self._step
        self._step.zero_()
        self._rounds.update(counted=round, taken=round)


class Growth:
    """Steps of the shape functions of a table's columns.

    Raises:
        ConfigError: a direction is of a column that is not there, or of words.
    """

    def __init__(self, ctx: ClientContext, bins: ShapeBins, cfg: Config) -> None:
        self._cfg, self._columns = cfg, bins.table.columns
        self._first = np.cumsum([0, *bins.counts])
        self._ordered = [number for number, column in enumerate(self._columns) if column.cuts is not None]
        self._directions = directions(ctx, self._columns)
        self._paired = [not self._directions.keys() & set(pair) for pair in bins.pairs]

    def step(self, values: Floats, gradients: Floats, hessians: Floats, rate: float) -> Floats:
        """The next step of every bin in multiples of STEP, (bins, scores). Arguments likewise."""
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
        """Leaves a step to the pairs that gain most by one, and none to columns with a direction."""
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
        """Gives the bins of a run of numbers one step."""
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
    """One step for every run of neighbouring bins, of each column by itself.

    Args:
        g, h: sums over the bins of columns, (columns, bins), with zeros from each one's count on.
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
