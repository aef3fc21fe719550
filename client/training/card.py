"""A party's part of a scorecard: its bins with their weights of evidence and points, for the party alone.

Bins are OptBinning's (Navas-Palencia 2020), each of some fine bins, computed from sums over these: two weighted rows
per fine bin, its goods and its bads, give the same cuts as all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.bins import BinnedTable, Binning, binned, directions
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear import RegressionColumns
from colonnade.client.training.local import REASONS, Reason, Reference
from colonnade.client.training.shapes import ShapeBins, ShapeSum
from colonnade.common.contracts.regression import CURVATURE
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.encryption.linear import Bins
from colonnade.common.errors import ContractError, DataError, EnvironmentFault
from colonnade.common.protocols.scorecard import Config

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_SMOOTHED = 0.5  # added to the goods and the bads of a bin that lacks one of them
_PURE = 0.1  # share of rows that are worth a word
_NAMED = 10


@dataclass(frozen=True, eq=False)
class Evidence:
    """A column's optimal bins.

    Args:
        group: the optimal bin of each fine bin, int64 (fine bins,).
        goods, bads: training rows of each optimal bin, int64 (bins,).
    """

    column: Binning
    group: Counts
    goods: Counts
    bads: Counts

    @property
    def smoothed(self) -> NDArray[np.bool_]:
        """Bins without goods or without bads."""
        found: NDArray[np.bool_] = (self.goods == 0) | (self.bads == 0)
        return found

    @property
    def woe(self) -> Floats:
        """Weight of evidence of each bin: ln of its share of the goods over its share of the bads."""
        goods, bads = self._shares()
        found: Floats = np.log(goods / bads)
        return found

    @property
    def values(self) -> Floats:
        goods, bads = self._shares()
        found: Floats = (goods - bads) * self.woe
        return found

    @property
    def iv(self) -> float:
        return float(self.values.sum())

    def _shares(self) -> tuple[Floats, Floats]:
        more = _SMOOTHED * self.smoothed
        return (self.goods + more) / self.goods.sum(), (self.bads + more) / self.bads.sum()

    def labels(self, *, whole: bool = True) -> list[str]:
        """The values of each bin, in words; unless `whole`, without missing values and other words that share a bin."""
        parts = [list[str]() for _ in self.goods]
        if self.column.cuts is None:
            for word, place in zip(self.column.words, self.group, strict=False):
                parts[place].append(word)
            if whole or self.column.other >= len(self.column.words):
                parts[self.group[self.column.other]].append("other words")
        else:
            for number in range(int(self.group[: self.column.values].max()) + 1):
                parts[number].append(self._interval(number))
            for value, place in self.column.special:
                parts[self.group[place]].append(f"{value:g}")
        if whole or self.column.missing >= self.column.values:
            parts[self.group[self.column.missing]].append("missing")
        return [", ".join(each) for each in parts]

    def cuts(self) -> list[float]:
        """For numbers: the last value of each optimal bin but the last."""
        assert self.column.cuts is not None
        ends = np.flatnonzero(np.diff(self.group[: self.column.values]))
        return [float(each) for each in self.column.cuts[ends]]

    def _interval(self, number: int) -> str:
        cuts = [f"{each:.12g}" for each in self.cuts()]
        if not cuts:
            return "any number"
        if number == len(cuts):
            return f"> {cuts[-1]}"
        return f"<= {cuts[0]}" if not number else f"> {cuts[number - 1]} and <= {cuts[number]}"


class CardBins:
    """Optimal bins of a party's columns. A protocol's own state, empty until they are fitted.

    `kept` are the numbers of the regression's columns, ascending.
    """

    def __init__(self) -> None:
        self.rows, self.bads, self.group = (np.empty(0, np.int64) for _ in range(3))
        self.kept: Counts = np.empty(0, np.int64)
        self.chosen = False

    def fit(self, ctx: ClientContext, cfg: Config, table: BinnedTable, sums: Floats) -> None:
        """Makes the bins, and leaves out columns of too little information, with a warning.

        `sums` are bads over the fine bins of all columns, as the server returned them. Raises ContractError if they are
        not counts of rows, DataError if no column has enough information.
        """
        train = table.codes[ctx.schedule.partition.train.numpy()]
        counted = [np.bincount(train[:, place], minlength=count) for place, count in enumerate(table.counts)]
        self.rows, self.bads = np.concatenate(counted), sums.astype(np.int64)
        _refuse_others(table, self.rows, self.bads, sums)
        steered, groups = directions(ctx, table.columns), []
        for number, (column, rows, bads) in enumerate(self._by_column(table, self.rows, self.bads)):
            if column.name in ctx.config.cuts:
                groups.append(np.arange(len(rows)))
            else:
                groups.append(optimal_bins(column, rows - bads, bads, steered.get(number)))
        self.group = np.concatenate(groups)
        found = self.evidence(table)
        self.kept = np.array([number for number, each in enumerate(found) if each.iv >= cfg.min_iv], np.int64)
        self._warn(ctx, cfg, found)
        for number, (column, rows, bads) in enumerate(self._by_column(table, self.rows, self.bads)):
            pure = rows[(bads == 0) | (bads == rows)].sum() / rows.sum()
            if number not in self.kept and pure > _PURE:
                ctx.warn(
                    f"column {column.name!r}: {pure:.0%} of its rows are in fine bins without goods or without bads, "
                    "which join others: it may tell more than its IV says; set `cuts`, or make the words coarser"
                )

    def choose(self, stays: NDArray[np.bool_]) -> None:
        """Drops kept columns that the server does not choose."""
        self.kept, self.chosen = self.kept[stays], True

    def evidence(self, table: BinnedTable) -> list[Evidence]:
        found = []
        for (column, rows, bads), (_, group, _) in zip(
            self._by_column(table, self.rows, self.bads), self._by_column(table, self.group, self.group), strict=True
        ):
            goods, count = rows - bads, int(group.max()) + 1
            found.append(
                Evidence(
                    column,
                    group,
                    np.bincount(group, goods, count).astype(np.int64),
                    np.bincount(group, bads, count).astype(np.int64),
                )
            )
        return found

    @staticmethod
    def _by_column(table: BinnedTable, one: Counts, other: Counts) -> list[tuple[Binning, Counts, Counts]]:
        ends = np.cumsum(table.counts)[:-1]
        return list(zip(table.columns, np.split(one, ends), np.split(other, ends), strict=True))

    def _warn(self, ctx: ClientContext, cfg: Config, found: list[Evidence]) -> None:
        few = [each for number, each in enumerate(found) if number not in self.kept]
        named = ", ".join(f"{each.column.name!r} ({each.iv:.3g})" for each in few[:_NAMED])
        said = f"{len(few)} of {len(found)} columns have an information value below {cfg.min_iv:g}: {named}"
        if len(few) == len(found):
            raise DataError(
                said,
                hint="bring columns that tell of the labels, or lower federation.protocol.min_iv",
                shared=f"none of its columns has an information value of {cfg.min_iv:g}",
            )
        if few:
            ctx.warn(f"{said}{' ..' if len(few) > _NAMED else ''}; they are left out")
        for number in self.kept:
            each = found[number]
            for place in np.flatnonzero(each.smoothed):
                lacks = "goods" if not each.goods[place] else "bads"
                ctx.warn(
                    f"column {each.column.name!r}: no {lacks} in the bin {each.labels()[place]}; its weight of "
                    f"evidence is that of {_SMOOTHED:g} more of both"
                )

    def state(self) -> dict[str, Any]:
        return {"chosen": self.chosen, **{name: torch.from_numpy(getattr(self, name).copy()) for name in _FITTED}}

    def restore(self, saved: dict[str, Any]) -> None:
        self.chosen = bool(saved["chosen"])
        for name in _FITTED:
            setattr(self, name, saved[name].numpy().copy())


_FITTED = ("rows", "bads", "group", "kept")


def _refuse_others(table: BinnedTable, rows: Counts, bads: Counts, sums: Floats) -> None:
    """Raises ContractError unless sums are counts of one set of rows in every column."""
    totals = [int(each.sum()) for each in np.split(bads, np.cumsum(table.counts)[:-1])]
    if (bads != sums).any() or (bads < 0).any() or (bads > rows).any() or len(set(totals)) > 1:
        got = "numbers that are none" if len(set(totals)) == 1 else "other totals from column to column"
        raise ContractError(SERVER, "OpenedSums", "y", "counts of rows in each bin", got)
    if not 0 < totals[0] < rows[: table.counts[0]].sum():
        raise ContractError(SERVER, "OpenedSums", "y", "rows of both classes", "rows of one")


def card_of(ctx: ClientContext, cfg: Config) -> tuple[BinnedTable, CardBins]:
    """The party's fine bins of its table, and its optimal bins from its state."""
    return binned(ctx, most=cfg.bins, least=cfg.least), ctx.state.keep("card", CardBins)


EXPLAINED = ("points", *(f"{what}_{n}" for n in range(1, REASONS + 1) for what in ("reason", "points")), "rest")
"""Fields of a line of reasons: the party's part of a score is the sum of the points of its reasons, and of the rest."""


class Card(ShapeSum):
    """Logits by points: `values` are the fine bins' logits, 0 for columns left out.

    `coefficients` are the kept columns', `means` their mean weights of evidence over the training rows, (kept,) each.
    """

    def __init__(
        self,
        ctx: ClientContext,
        cfg: Config,
        table: BinnedTable,
        bins: CardBins,
        coefficients: Floats,
        means: Floats,
    ) -> None:
        self.factor, self.kept, self._evidence = cfg.factor, bins.kept, bins.evidence(table)
        self._coefficients, self._means_of_woe, self._test = coefficients, means, ctx.schedule.partition.test
        values = [np.zeros(count) for count in table.counts]
        for number, coefficient, mean in zip(self.kept, coefficients, means, strict=True):
            each = self._evidence[number]
            values[number] = coefficient * (each.woe - mean)[each.group]
        super().__init__(ctx, ShapeBins(table), np.concatenate(values)[:, None], unit=-cfg.factor)

    @property
    def wrong(self) -> list[str]:
        """Kept columns whose points fall where the share of goods rises: they are collinear with others."""
        signs = zip(self.kept, self._coefficients, strict=True)
        return [self.names[number] for number, coefficient in signs if coefficient > 0 and self._tells(number)]

    def _tells(self, number: int) -> bool:
        """True if a column has rounded points other than 0."""
        return bool(np.rint(self._points[self._first[number] : self._first[number + 1]]).any())

    def points(self, rows: Tensor) -> Floats:
        """Points of rows, int64 (rows,), in each column, float64 (rows, columns)."""
        return self.parts(rows)[:, :, 0]

    def reasons(
        self, rows: Tensor, most: int = REASONS, reference: Reference = "mean", score: int = 0
    ) -> list[list[Reason]]:
        """As `ShapeSum.reasons`, with the values of the row's bin in words."""
        places = {name: number for number, name in enumerate(self.names)}
        words, codes = [each.labels(whole=False) for each in self._evidence], self.bins.codes[rows.numpy()]

        def said(row: int, name: str) -> str:
            number = places[name]
            return f"{name}: {words[number][self._evidence[number].group[codes[row, number]]]}"

        found = super().reasons(rows, most, reference, score)
        return [[(said(row, name), points) for name, points in each] for row, each in enumerate(found)]

    def reason_lines(self, rows: Tensor) -> list[list[str]]:
        """A line of text for each row, with the fields of EXPLAINED."""
        lines = []
        for total, reasons in zip(self.points(rows).sum(axis=1), self.reasons(rows), strict=True):
            rest = total - sum(points for _, points in reasons)
            named = [each for reason, points in reasons for each in (reason, f"{points:.6f}")]
            lines.append([f"{total:.6f}", *named, *[""] * (2 * (REASONS - len(reasons))), f"{rest:.6f}"])
        return lines

    def _means(self, number: int) -> Floats:  # noqa: ARG002  # points are against those of the mean training row
        return np.zeros(1)

    def record(self) -> dict[str, Any]:
        """The card in JSON types: docs/protocols/scorecard.md, "Export"."""
        first = self._evidence[0]
        totals = {"rows": int((first.goods + first.bads).sum()), "bads": int(first.bads.sum())}
        return {"factor": self.factor, **totals, "columns": list(self._described())}

    def _described(self) -> Iterator[dict[str, Any]]:
        fitted = dict(zip(self.kept.tolist(), zip(self._coefficients, self._means_of_woe, strict=True), strict=True))
        for number, each in enumerate(self._evidence):
            coefficient, mean = fitted.get(number, (None, None))
            column, group = each.column, each.group
            values: dict[str, Any]
            if column.cuts is None:
                words = [[word, int(place)] for word, place in zip(column.words, group, strict=False)]
                values = {"words": words, "others": int(group[column.other])}
            else:
                special = [[value, int(group[place])] for value, place in column.special]
                values = {"cuts": each.cuts(), "special": special}
            yield {
                "column": column.name,
                "kept": coefficient is not None,
                "iv": each.iv,
                "coefficient": coefficient,
                "mean": mean,
                **values,
                "missing": int(group[column.missing]),
                "bins": list(self._bins(number, each, coefficient, mean)),
            }

    def _bins(
        self, number: int, each: Evidence, coefficient: float | None, mean: float | None
    ) -> Iterator[dict[str, Any]]:
        counts = each.goods + each.bads
        tested = np.bincount(each.group[self.bins.codes[self._test.numpy(), number]], minlength=len(counts))
        for place, (label, reason) in enumerate(zip(each.labels(), each.labels(whole=False), strict=True)):
            points = None
            if coefficient is not None and mean is not None:
                points = float(-self.factor * coefficient * (each.woe[place] - mean))
            yield {
                "label": label,
                "count": int(counts[place]),
                "bads": int(each.bads[place]),
                "test": int(tested[place]),
                "event_rate": float(each.bads[place] / counts[place]),
                "woe": float(each.woe[place]),
                "iv": float(each.values[place]),
                "smoothed": bool(each.smoothed[place]),
                "points": points,
                "rounded": None if points is None else round(points),
                "reason": f"{each.column.name}: {reason}",
            }


class WoeColumns(RegressionColumns):
    """A party's kept columns, each value replaced by its bin's weight of evidence."""

    def __init__(self, ctx: ClientContext, cfg: Config, table: BinnedTable, bins: CardBins) -> None:
        self._cfg, self._table, self._bins = cfg, table, bins
        found = bins.evidence(table)
        self._kept: list[Evidence] = [found[number] for number in bins.kept]
        self._ends = np.cumsum([len(each.woe) for each in self._kept])[:-1]
        super().__init__(ctx, 0.0 if cfg.c == "none" else 1 / cfg.c, CURVATURE["classification"])

    def matrix(self) -> Bins:
        """One line per optimal bin."""
        return Bins(self._codes(), tuple(len(each.woe) for each in self._kept))

    def model(self, coefficients: Floats) -> Card:
        return Card(self._ctx, self._cfg, self._table, self._bins, coefficients[:, 0], self.mean)

    def _name(self, number: int) -> str:
        return repr(self._kept[number].column.name)

    def _encoded(self) -> tuple[Floats, NDArray[np.bool_]]:
        codes = self._codes()
        x = np.stack([each.woe[codes[:, place]] for place, each in enumerate(self._kept)], axis=1)
        return x, np.zeros(len(self._kept), np.bool_)

    def _times(self, sums: Floats) -> tuple[Floats, Floats]:
        parts = np.split(sums, self._ends)
        return np.stack([each.woe @ part for each, part in zip(self._kept, parts, strict=True)]), parts[0].sum(axis=0)

    def _codes(self) -> NDArray[np.unsignedinteger]:
        """The training rows' optimal bins, (rows, columns)."""
        fine = self._table.codes[self._ctx.schedule.partition.train.numpy()][:, self._bins.kept]
        found = np.empty(fine.shape, fine.dtype)
        for place, each in enumerate(self._kept):
            found[:, place] = each.group[fine[:, place]]
        return found


_TRENDS = {None: "auto_asc_desc", 1: "ascending", -1: "descending"}


def optimal_bins(column: Binning, goods: Counts, bads: Counts, direction: int | None = None) -> Counts:
    """The optimal bin of every fine bin of a column, int64 (fine bins,), from 0.

    Neighbouring fine bins of numbers are joined so that the share of bads is monotone and the information value
    largest; words by their share of bads. Bins of missing and special values stay. `direction` is 1 if the share of
    bads has to rise along the column, -1 if it has to fall.
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
    """Cuts between ordered places 0, 1, .. where joined bins end."""
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
