"""Optimal bins by OptBinning (Navas-Palencia 2020), from sums over fine bins.

Two weighted rows a fine bin, its goods and its bads, give the cuts that all rows give.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from colonnade.client.training.trees.bins import Binning
from colonnade.common.errors import EnvironmentFault

Counts = NDArray[np.int64]

_TRENDS = {None: "auto_asc_desc", 1: "ascending", -1: "descending"}


def optimal_bins(column: Binning, goods: Counts, bads: Counts, direction: int | None = None) -> Counts:
    """The optimal bin of every fine bin of a column, int64 (fine bins,), from 0.

    Neighbouring fine bins of numbers are joined so that the share of bads only rises or only falls, and the information
    value is largest; words by their share of bads. The bins of missing and of special values stay.

    Args:
        goods, bads: in every fine bin.
        direction: 1 if the share of bads has to rise along the column, -1 if it has to fall.

    """
    values, order = column.values, np.arange(column.values)
    if column.cuts is None:
        share = bads[:values] / np.maximum(goods[:values] + bads[:values], 1)
        order, direction = np.argsort(share, kind="stable"), 1
    apart = np.arange(len(goods)) >= values
    cuts = _cuts(goods[:values][order], bads[:values][order], goods[apart].sum(), bads[apart].sum(), direction)
    found = np.empty(len(goods), np.int64)
    found[order] = np.searchsorted(cuts, np.arange(values))
    found[apart] = len(cuts) + 1 + np.arange(apart.sum())
    return found


def _cuts(goods: Counts, bads: Counts, other_goods: int, other_bads: int, direction: int | None) -> NDArray[np.float64]:
    """Cuts between places 0, 1, .. in an order, between which the bins are joined."""
    if len(goods) < 2 or not goods.sum() or not bads.sum():
        return np.empty(0)
    library = import_module("optbinning")  # here: it takes seconds
    forever = 1e6  # seconds: a solver that runs out of time has other bins on a busy machine
    binning = library.OptimalBinning(dtype="numerical", monotonic_trend=_TRENDS[direction], time_limit=forever)
    places = np.append(np.arange(len(goods), dtype=np.float64), np.nan)  # others count in what is too small a bin
    weights = np.concatenate([np.append(goods, other_goods), np.append(bads, other_bads)]).astype(np.float64)
    x, y = np.tile(places, 2), np.repeat([0, 1], len(places))
    there = weights > 0
    binning.fit(x[there], y[there], sample_weight=weights[there])
    return np.asarray(binning.splits, np.float64)


def refuse_without_library() -> None:
    """Raises EnvironmentFault if OptBinning is not installed."""
    if find_spec("optbinning") is None:
        raise EnvironmentFault(
            "scorecards need OptBinning, which is not installed", hint="pip install 'colonnade[scorecards]'"
        )
