"""What a party's shape functions say of rows, columns and values, in words: for its own eyes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.client.training.reasons import REASONS, Reason, Reference, lowest
from colonnade.client.training.trees.pairs import ShapeBins
from colonnade.common.data.columns.scale import Columns

Floats = NDArray[np.float64]


class ShapeSum(Local):
    """Scores by a party's shape functions: of rows of its table, which is not encoded.

    Attributes:
        values: float64 (bins, scores).
        names: of the columns, and of pairs as `one x other`.

    Args:
        unit: points of a step of 1 in the score, which parts and reasons are in.
    """

    def __init__(self, ctx: ClientContext, bins: ShapeBins, values: Floats, unit: float = 1.0) -> None:
        super().__init__(nn.Identity())
        self.bins, self.values, self._points = bins, values, unit * values
        columns = self.bins.table.names
        self.names = [*columns, *(f"{columns[one]} x {columns[other]}" for one, other in self.bins.pairs)]
        self._first = np.cumsum([0, *self.bins.counts])
        self._train = ctx.schedule.partition.train

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:  # noqa: ARG002  # the interface's
        """Numbers of rows, int64 (rows,) -> float32 (rows, scores)."""
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
        """The columns and pairs that lower the points of each row most, against the mean or the best of their values.

        Returns for each row at most `most` of them, with what they lower it by: a number below 0, the lowest first.
        """
        parts = self.parts(rows)[:, :, score]
        if reference == "best":
            ends = zip(self._first, self._first[1:], strict=False)
            best = [self._points[first:last, score].max() for first, last in ends]
            means = [self._means(number)[score] for number in range(len(self.names))]
            parts = parts - (np.array(best) - np.array(means))
        return lowest(parts, self.names, most)

    def explained(self, ctx: ClientContext) -> dict[str, Any]:  # noqa: ARG002  # the interface's
        """As of `Local`: `described`."""
        return {kind: sorted(each, key=lambda one: -one["importance"]) for kind, each in self.described().items()}

    def described(self) -> dict[str, Any]:
        """Every shape function as JSON: what each bin adds to the scores, and which values are in it."""
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
        """Of the training rows, by bin."""
        codes = self.bins.codes[self._train.numpy(), number]
        return np.bincount(codes, minlength=self.bins.counts[number]) / max(len(codes), 1)
