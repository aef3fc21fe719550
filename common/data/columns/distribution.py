"""Distribution of a table's columns in training, with which the rows of a prediction are compared.

The population stability index (PSI) of a column is sum (q - p) ln (q / p) over its bins, with the shares p of the
training rows and q of the new ones. Bins of numbers: the deciles of the training rows, one for values outside their
range, one for missing values. Of words: the nine most frequent, all others of training, those unknown in training,
missing ones. Half a row is added to each bin, so that an empty one has a share; a bin that is empty in both is left
out. For equal distributions, of n and N rows, it is (1 / n + 1 / N) times a chi-square with one degree of freedom less
than bins (Yurdakul and Naranjo, Statistical properties of the population stability index, 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.data.columns.encode import Code
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.run.files import write_kept
from colonnade.common.run.json_text import sealed, unsealed
from colonnade.common.run.run_folder import MemberFolder

MODERATE, LARGE = 0.1, 0.25
"""Limits of the index by convention: below the first a column is stable, from the second on it has shifted."""

_TENTHS = np.arange(1, 10) / 10
_WORDS = 9  # bins of single words
_Z = 3.09  # of a normal distribution, exceeded once in 1000
MOST_ROWS = 65_536  # training rows that are counted: more say nothing new of ten bins


@dataclass(frozen=True)
class ColumnBins:
    """Bins of a column. Cells are counted in an array: the bins, then values new to training, then missing ones.

    Args:
        edges: edges of number bins, ascending: the smallest training value, deciles, the next float above the largest.
        words: words with their own bins, for a category; None for numbers.
        counts: training rows by bin, int64 (bins + 2,); None if unknown.
    """

    name: str
    edges: np.ndarray
    words: tuple[str, ...] | None = None
    counts: np.ndarray | None = None

    @property
    def bins(self) -> int:
        """Number of bins, without those of new and missing values."""
        return max(len(self.edges) - 1, 0) if self.words is None else len(self.words) + 1

    def places(self, cells: np.ndarray, field: TypedColumn, trained: Sequence[str]) -> np.ndarray:
        """The place of each cell in the counts, uint8 (n,).

        Args:
            cells: float64 (n,), as the table has them: numbers, or codes of words; NaN is missing.
            trained: all words that training rows have.
        """
        missing = np.isnan(cells)
        if self.words is None:
            found = np.searchsorted(self.edges, cells, side="right") - 1
            found = np.where((found < 0) | (found >= self.bins), self.bins, found) if self.bins else found * 0
        else:
            own = {word: place for place, word in enumerate(self.words)}
            rare = dict.fromkeys(trained, len(self.words)) | own
            places = np.array([*(rare.get(word, self.bins) for word in field.words or ()), 0])
            found = places[np.where(missing, len(places) - 1, cells).astype(np.int64)]
        return np.where(missing, self.bins + 1, found).astype(np.uint8)

    def count(self, places: np.ndarray) -> np.ndarray:
        return np.bincount(places, minlength=self.bins + 2)

    def index(self, counts: np.ndarray) -> tuple[float, float] | None:
        """The index of some rows' counts, and its 99.9 % quantile under equal distributions; None if unknown."""
        return None if self.counts is None else stability(self.counts, counts)


def stability(before: np.ndarray, now: np.ndarray) -> tuple[float, float] | None:
    """The index of two counts over the same bins, int64 (bins,), and its 99.9 % quantile under equal distributions;
    None without rows.
    """
    if not before.sum() or not now.sum():
        return None
    used = (now + before) > 0
    p, q = before[used] + 0.5, now[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    chance = _chi_square(int(used.sum()) - 1) * (1 / now.sum() + 1 / before.sum())
    return float(((q - p) * np.log(q / p)).sum()), float(chance)


def level(index: tuple[float, float] | None) -> str:
    """`shifted`, `moved` or "": an index below its quantile is no shift."""
    if index is None or index[0] < max(MODERATE, index[1]):
        return ""
    return "shifted" if index[0] >= LARGE else "moved"


def _chi_square(freedom: int) -> float:
    """The 99.9 % quantile (Wilson and Hilferty 1931); 0 for no degree of freedom."""
    part = 2 / (9 * freedom) if freedom else 0.0
    return float(freedom * (1 - part + _Z * part**0.5) ** 3)


def fit(features: Features, codes: Sequence[Code], rows: Tensor) -> tuple[ColumnBins, ...]:
    """Bins of typed columns, one code each, and counts of the training rows, int64 (m,), or a sample; empty for plain
    values.
    """
    some = rows[:: -(-len(rows) // MOST_ROWS) or 1]
    values = features.values[some].numpy() if codes else np.empty((0, 0))
    return tuple(
        _fitted(code, field, np.ascontiguousarray(values[:, place]))
        for place, (code, field) in enumerate(zip(codes, features.fields, strict=True))
    )


def without_counts(codes: Sequence[Code]) -> tuple[ColumnBins, ...]:
    """Bins of a run that stored no distribution: they show only new words and missing values."""
    nothing = np.empty(0)
    return tuple(ColumnBins(code.name, nothing, None if code.words is None else ()) for code in codes)


def _fitted(code: Code, field: TypedColumn, cells: np.ndarray) -> ColumnBins:
    present = cells[~np.isnan(cells)]
    missing = len(cells) - len(present)
    if code.words is None:
        if not len(present):
            return ColumnBins(code.name, np.empty(0), None, np.array([0, missing]))
        there = np.sort(present)  # once, for edges and counts: a table may have tens of thousands of columns
        edges = tenths(there)
        inside = np.diff(np.searchsorted(there, edges))
        return ColumnBins(code.name, edges, None, np.concatenate([inside, [0, missing]]))
    assert field.words is not None
    often = np.bincount(present.astype(np.int64), minlength=len(field.words))
    most = [one for one in np.argsort(-often, kind="stable")[:_WORDS].tolist() if often[one]]
    counts = [*often[most], len(present) - often[most].sum(), 0, missing]
    return ColumnBins(code.name, np.empty(0), tuple(field.words[one] for one in most), np.array(counts))


def tenths(values: np.ndarray) -> np.ndarray:
    """Edges of number bins from sorted values, at least one."""
    inner = values[np.ceil(_TENTHS * len(values)).astype(np.int64) - 1]
    return np.unique(np.concatenate([values[:1], inner, np.nextafter(values[-1:], np.inf)]))


class DistributionFile:
    """File in a member's folder with the distribution of its training rows; it never leaves the member."""

    def __init__(self, folder: Path) -> None:
        self._path = MemberFolder(folder).distribution

    def write(self, columns: Sequence[ColumnBins]) -> None:
        """Writes it, unless there is no typed column. Raises EnvironmentFault."""
        if columns:
            content = {"format": 1, "columns": [_taken_apart(column) for column in columns]}
            write_kept(self._path, sealed(content), 0o600)

    def read(self, codes: Sequence[Code]) -> tuple[tuple[ColumnBins, ...], str]:
        """The bins of an encoder's columns, and why indices are unknown ("" if they are known)."""
        try:
            record = unsealed(self._path.read_bytes())
            columns = tuple(map(_put_together, record["columns"]))
            fits = [(one.name, one.words is None) for one in columns] == [(of.name, of.words is None) for of in codes]
            if record["format"] != 1 or not fits:
                raise ValueError("of other columns")
        except FileNotFoundError:
            return without_counts(codes), "this run kept no distribution of its training rows" if codes else ""
        except (OSError, ValueError, KeyError, TypeError):
            return without_counts(codes), f"{self._path.name} is damaged, or of other columns"
        return columns, ""


def _taken_apart(column: ColumnBins) -> dict[str, Any]:
    counts = [] if column.counts is None else column.counts.tolist()
    return {"name": column.name, "edges": column.edges.tolist(), "words": column.words, "counts": counts}


def _put_together(record: dict[str, Any]) -> ColumnBins:
    words = record["words"]
    edges, counts = np.array(record["edges"], np.float64), np.array(record["counts"], np.int64)
    found = ColumnBins(str(record["name"]), edges, None if words is None else tuple(map(str, words)), counts)
    if edges.ndim != 1 or np.any(np.diff(edges) <= 0) or counts.shape != (found.bins + 2,) or np.any(counts < 0):
        raise ValueError("bins and counts do not fit")
    return found


def binned(bins: Sequence[ColumnBins], codes: Sequence[Code], features: Features) -> Tensor:
    """The place of each cell in its column's counts, uint8 (rows, columns): an eighth of the cells' own size."""
    values = features.values.numpy()
    made = torch.empty(len(values), len(bins), dtype=torch.uint8)
    for place, (column, code, field) in enumerate(zip(bins, codes, features.fields, strict=True)):
        made[:, place] = torch.from_numpy(column.places(values[:, place], field, code.words or ()))
    return made
