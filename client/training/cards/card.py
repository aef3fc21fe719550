"""A party's part of a scorecard: columns of weights of evidence, and the points of their bins, for its own eyes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.cards.bins import CardBins, Evidence
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear.columns import RegressionColumns
from colonnade.client.training.reasons import REASONS, Reason, Reference
from colonnade.client.training.trees.bins import BinnedTable
from colonnade.client.training.trees.pairs import ShapeBins
from colonnade.client.training.trees.points import ShapeSum
from colonnade.common.contracts.regression import CURVATURE
from colonnade.common.encryption.linear import Bins
from colonnade.common.protocols.scorecard import Config

Floats = NDArray[np.float64]

EXPLAINED = ("points", *(f"{what}_{n}" for n in range(1, REASONS + 1) for what in ("reason", "points")), "rest")
"""Fields of a line of reasons: the party's part of a score is the sum of the points of its reasons, and of the rest."""


class Card(ShapeSum):
    """Logits by points: `values` are logits of the fine bins, of the columns that are left out 0.

    Args:
        coefficients: of the kept columns, (kept,).
        means: of their weights of evidence over the training rows, (kept,).
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
        """Kept columns with points that fall where the share of goods rises: others tell what they tell, and more."""
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
        """As of `ShapeSum`, with the values of the row's bin in words."""
        places = {name: number for number, name in enumerate(self.names)}
        words, codes = [each.labels(whole=False) for each in self._evidence], self.bins.codes[rows.numpy()]

        def said(row: int, name: str) -> str:
            number = places[name]
            return f"{name}: {words[number][self._evidence[number].group[codes[row, number]]]}"

        found = super().reasons(rows, most, reference, score)
        return [[(said(row, name), points) for name, points in each] for row, each in enumerate(found)]

    def reason_lines(self, rows: Tensor) -> list[list[str]]:
        """A line of text for each row, in the order of EXPLAINED."""
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
    """The kept columns of a party, each value replaced by its bin's weight of evidence."""

    def __init__(self, ctx: ClientContext, cfg: Config, table: BinnedTable, bins: CardBins) -> None:
        self._cfg, self._table, self._bins = cfg, table, bins
        found = bins.evidence(table)
        self._kept: list[Evidence] = [found[number] for number in bins.kept]
        self._ends = np.cumsum([len(each.woe) for each in self._kept])[:-1]
        super().__init__(ctx, 0.0 if cfg.c == "none" else 1 / cfg.c, CURVATURE["classification"])

    def matrix(self) -> Bins:
        """One line an optimal bin."""
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
        """The optimal bin of the training rows in every column, (rows, columns)."""
        fine = self._table.codes[self._ctx.schedule.partition.train.numpy()][:, self._bins.kept]
        found = np.empty(fine.shape, fine.dtype)
        for place, each in enumerate(self._kept):
            found[:, place] = each.group[fine[:, place]]
        return found
