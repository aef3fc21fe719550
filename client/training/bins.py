"""A party's columns as bins, for trees, shapes and cards: fitted on its training rows once in a run, and then kept.

Numbers: greedy bins as in LightGBM (Ke et al. 2017). Up to `most` distinct values have a bin each. With more, a value
that is more frequent than a mean bin has its own, and the other bins grow until they hold their share. A cut lies
half-way between two neighbouring values. Words: a bin for each frequent word, and one for all others, including new
ones. Missing values have the last bin, special values of the party's configuration one each.

Every row is in exactly one bin of a column, and every bin holds at least `least` training rows: sums over few rows
would reveal their summands. Rarer values share a bin with their neighbours, rare missing values join the median's bin,
and rare words that are too few together join the most frequent word's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import PartyConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.encryption.linear import Bins
from colonnade.common.errors import ConfigError, DataError, InputError, nearest

MOST, LEAST = 64, 20  # bins of a column, besides that of missing values, and training rows of a bin

_NAMED = 10  # columns in a warning
_DIGITS = 12  # of a cut in words

Numbers = NDArray[np.float64]
Codes = NDArray[np.unsignedinteger]


@dataclass(frozen=True, eq=False)
class Binning:
    """Bins of one column, numbered from 0.

    Args:
        cuts: float64 (k,), ascending; bin b holds cuts[b - 1] < x <= cuts[b]. None for words.
        words: words with a bin each, from 0, the most frequent first; none for numbers.
        other: the bin of all other words: the next, or 0.
        missing: the bin of missing values: after those, or a shared one.
        special: numbers with another meaning, and the bin of each: after those, or `missing`.
    """

    name: str
    cuts: Numbers | None = None
    words: tuple[str, ...] = ()
    other: int = 0
    missing: int = 0
    special: tuple[tuple[float, int], ...] = ()

    @classmethod
    def fit(cls, name: str, cells: Numbers, words: Sequence[str] | None, most: int, least: int) -> Self:
        """Fits bins to training rows.

        Args:
            cells: (rows,): numbers, or places in `words`; NaN is missing.
            words: None for numbers.
            most: number of bins besides that of missing values; at least 2.
            least: rows per bin; at least 1.
        """
        present = cells[~np.isnan(cells)]
        absent = len(cells) - len(present)
        if len(present) < least:  # even a bin of all of them would show too much
            return cls(name, np.empty(0) if words is None else None)
        if words is not None:
            return cls._of_words(name, np.bincount(present.astype(np.int64)), words, absent, most, least)
        values, counts = np.unique(present, return_counts=True)
        ends = few_values(counts, least) if len(values) <= most else greedy(counts, most, least)
        cuts = _between(values[ends], values[ends + 1])
        median = values[np.searchsorted(np.cumsum(counts), len(present) / 2)]
        return cls(name, cuts, missing=len(cuts) + 1 if absent >= least else int(np.searchsorted(cuts, median)))

    @classmethod
    def _of_words(
        cls, name: str, counts: NDArray[np.int64], words: Sequence[str], absent: int, most: int, least: int
    ) -> Self:
        order = np.argsort(-counts, kind="stable")
        often = order[counts[order] >= least][:most]
        own = absent >= least
        rest = int(counts.sum() - counts[often].sum()) + (0 if own else absent)
        if len(often) == most and rest >= least:
            often, rest = often[:-1], rest + int(counts[often[-1]])
        other = len(often) if rest >= least else 0
        missing = max(len(often), other + 1) if own else other
        return cls(name, None, tuple(words[place] for place in often), other, missing)

    @property
    def values(self) -> int:
        """Bins of other than missing and special values."""
        return max(len(self.words), self.other + 1) if self.cuts is None else len(self.cuts) + 1

    @property
    def count(self) -> int:
        return max(self.values, self.missing + 1, *(place + 1 for _, place in self.special))

    def codes(self, cells: Numbers, words: Sequence[str] | None) -> NDArray[np.int64]:
        """The bin of each cell, (rows,). Arguments as for `fit`; `words` may differ from training's."""
        absent = np.isnan(cells)
        if self.cuts is not None:
            found = np.searchsorted(self.cuts, cells)
            for value, place in self.special:
                found[cells == value] = place
        else:
            own = {word: place for place, word in enumerate(self.words)}
            places = np.array([own.get(word, self.other) for word in words or ()] + [self.missing])
            found = places[np.where(absent, len(places) - 1, cells).astype(np.int64)]
        return np.where(absent, self.missing, found)

    def refuse(self, left: NDArray[np.bool_]) -> None:
        """Raises InputError if this is no split of the column: an empty side, other bins, or numbers not cut in two.

        `left` marks the bins on the left side, bool (count,): for numbers the first ones, and possibly that of missing
        values.
        """
        if left.shape != (self.count,):
            raise InputError(f"a split of {len(left)} bins of a column that has {self.count}")
        if left.all() or not left.any():
            raise InputError("a split with an empty side")
        if self.cuts is not None and (left[1 : self.values] > left[: self.values - 1]).any():
            raise InputError("a split of numbers that is no cut")

    def describe(self, left: NDArray[np.bool_]) -> str:
        """The left side in words, for the party itself: `age <= 37.5`. Arguments and errors as for `refuse`."""
        self.refuse(left)
        lost, last = ["missing"] if left[self.values :].any() else [], int(left[: self.values].sum())
        if self.cuts is None:
            named = [word for word, there in zip(self.words, left, strict=False) if there]
            named += ["another word"] if self.other == len(self.words) and left[self.other] else []
        elif 0 < last < self.values:
            return " or ".join([f"{self.name} <= {self.cuts[last - 1]:.{_DIGITS}g}", *lost])
        else:
            named = ["a number"] if last else []
        return f"{self.name} is {' or '.join(named + lost)}"

    def record(self, left: NDArray[np.bool_]) -> dict[str, Any]:
        """The left side in JSON types, for programs. Arguments and errors as for `refuse`.

        Numbers: `at_most`, or "none" or "all". Words: `left`, `right`, and the side of `others`. Both: whether
        `missing` cells go left.
        """
        self.refuse(left)
        found: dict[str, Any] = {"column": self.name, "missing": bool(left[self.missing])}
        if self.cuts is None:
            named = {True: list[str](), False: list[str]()}
            for place, word in enumerate(self.words):
                named[bool(left[place])].append(word)
            return {**found, "left": named[True], "right": named[False], "others": bool(left[self.other])}
        last = int(left[: self.values].sum())
        most = "none" if not last else "all" if last == self.values else float(self.cuts[last - 1])
        return {**found, "at_most": most}


def few_values(counts: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """The last value of every bin but the last: one bin per value, or per group of rare neighbours.

    `counts` are the rows of each value, in the values' order.
    """
    ends, size = list[int](), 0
    for place, count in enumerate(counts.tolist()):
        size += count
        if size >= least:
            ends.append(place)
            size = 0
    return np.array(ends[:-1], np.int64)  # what is left over joins the last one


def greedy(counts: NDArray[np.int64], most: int, least: int) -> NDArray[np.int64]:
    """As `few_values`, with at most `most` bins."""
    total = np.concatenate([[0], np.cumsum(counts)])
    most = max(1, min(most, int(total[-1]) // least))
    large = np.flatnonzero(counts * most >= total[-1])  # at most `most` values; each has a bin
    small, rest = most - len(large), int(total[-1] - counts[large].sum())
    ends, start = list[int](), 0
    while start < len(counts):
        after = large[np.searchsorted(large, start) :]
        first = int(after[0]) if len(after) else len(counts)
        share = max(rest / max(small, 1), least)
        end = int(np.searchsorted(total, total[start] + share)) - 1
        before = int(total[first] - total[start])
        if end < first and small:
            small, rest = small - 1, rest - int(total[end + 1] - total[start])
        elif first < len(counts) and before >= least and small > 1:
            end, small, rest = first - 1, small - 1, rest - before
        elif first < len(counts):
            end, rest = first, rest - before
        else:  # less than a share is left
            end = len(counts) - 1
            if before < least or not small:
                break
        ends.append(end)
        start = end + 1
    return np.array(ends[:-1], np.int64)


def _between(below: Numbers, above: Numbers) -> Numbers:
    """Half-way between neighbouring values, or the lower ones where no number lies between."""
    middle = below / 2 + above / 2  # their sum may overflow
    return np.where((below <= middle) & (middle < above), middle, below)


def binned(ctx: ClientContext, *, most: int = MOST, least: int = LEAST) -> BinnedTable:
    """Bins of the rows of `ctx.table`, fitted to the training rows when a run begins.

    `ctx.state` keeps them for resumed runs and predictions. Arguments and errors as for `TableBins.fit`.
    """
    bins = ctx.state.keep("bins", TableBins)
    if not bins.columns:
        own = OwnBins.of(ctx.name, ctx.config)
        bins.fit(ctx.table, ctx.schedule.partition.train, ctx.warn, own, most=most, least=least)
    return bins.of(ctx.table)


def directions(ctx: ClientContext, columns: Sequence[Binning]) -> Mapping[int, int]:
    """Columns along which scores only rise (1) or fall (-1), from the party's section `monotone`.

    Raises ConfigError for an unknown column, or one of words.
    """
    places, found = {column.name: number for number, column in enumerate(columns)}, dict[int, int]()
    for name, direction in ctx.config.monotone.items():
        where = f"parties.{ctx.name}.monotone: column {name!r}"
        if name not in ctx.table.names:
            raise ConfigError(f"{where} is not in the table{nearest(name, ctx.table.names)}")
        if name in places:  # others have one bin
            if columns[places[name]].cuts is None:
                raise ConfigError(f"{where} is of words, which have no order", hint="leave it out")
            found[places[name]] = 1 if direction == "rising" else -1
    return found


class TableBins:
    """Bins of a party's columns, as its state keeps them. Empty until fitted or restored.

    `places` are the table's columns with at least two bins, ascending.
    """

    def __init__(self) -> None:
        self.places: tuple[int, ...] = ()
        self.columns: tuple[Binning, ...] = ()

    def fit(
        self,
        table: Features,
        rows: Tensor,
        warn: Callable[[str], None],
        own: OwnBins | None = None,
        *,
        most: int = MOST,
        least: int = LEAST,
    ) -> None:
        """Fits the bins on training rows, int64 (m,), alone; columns with one bin are left out with a warning to the
        party.

        Raises DataError if no column has two bins, ConfigError if `own` names an unknown column; both also as
        `OwnBins.fit`.
        """
        if most < 2 or least < 1:
            raise InputError(f"{most} bins of {least} rows", hint="take 2 bins at least, of 1 row at least")
        own = own or OwnBins()
        own.refuse_others(table.names)
        cells, words = table.values[rows].flatten(1), _words(table)
        found = [
            own.fit(partial(Binning.fit, name, words=words[place], most=most, least=least), column, least, warn)
            for place, (name, column) in enumerate(zip(table.names, map(_numbers, cells.T), strict=True))
        ]
        if single := [one.name for one in found if one.count == 1]:
            named = ", ".join(map(repr, single[:_NAMED])) + (" .." if len(single) > _NAMED else "")
            said = f"{len(single)} of {len(found)} columns are left out: {named}"
            why = f"no two of their values are in {least} training rows each"
            if len(single) == len(found):
                hint = "bring columns that vary, or take fewer rows for a bin"
                raise DataError(f"{said}; {why}", hint=hint, shared="none of its columns has two bins")
            warn(f"{said}; {why}")
        self.places = tuple(place for place, one in enumerate(found) if one.count > 1)
        self.columns = tuple(one for one in found if one.count > 1)

    def of(self, table: Features) -> BinnedTable:
        """The bins of a table's rows, training's or others. Raises DataError if its columns differ from training's."""
        words = _words(table)
        for place, column in zip(self.places, self.columns, strict=True):
            there = place < len(words) and table.names[place] == column.name
            if not there or (words[place] is None) != (column.cuts is not None):
                raise DataError(
                    f"the table has no column {column.name!r} of {'words' if column.cuts is None else 'numbers'} in "
                    "its place",
                    hint="give the columns of training, and say no other `types` of them",
                    shared="its table has other columns than in training",
                )
        cells = table.values.flatten(1)
        wide = max((column.count for column in self.columns), default=0) > 1 << 8
        codes: Codes = np.empty((len(cells), len(self.columns)), np.uint16 if wide else np.uint8)
        for number, (place, column) in enumerate(zip(self.places, self.columns, strict=True)):
            codes[:, number] = column.codes(_numbers(cells[:, place]), words[place])
        return BinnedTable(self.columns, codes)

    def state(self) -> dict[str, Any]:
        cuts = [column.cuts for column in self.columns if column.cuts is not None]
        return {
            "cuts": torch.from_numpy(np.concatenate([np.empty(0), *cuts])),
            "columns": [
                {
                    "place": place,
                    "name": column.name,
                    "cuts": None if column.cuts is None else len(column.cuts),
                    "words": list(column.words),
                    "other": column.other,
                    "missing": column.missing,
                    "special": list(column.special),
                }
                for place, column in zip(self.places, self.columns, strict=True)
            ],
        }

    def restore(self, saved: Any) -> None:
        cuts, records = saved["cuts"].numpy(), saved["columns"]
        ends = np.cumsum([0, *(record["cuts"] or 0 for record in records)])
        if cuts.dtype != np.float64 or cuts.shape != (ends[-1],):
            raise ValueError(f"{cuts.dtype} {cuts.shape} for {ends[-1]} cuts")
        self.places = tuple(record["place"] for record in records)
        self.columns = tuple(
            Binning(
                record["name"],
                None if record["cuts"] is None else cuts[start : start + record["cuts"]],
                tuple(record["words"]),
                record["other"],
                record["missing"],
                tuple((value, place) for value, place in record.get("special", ())),
            )
            for start, record in zip(ends, records, strict=False)
        )


@dataclass(frozen=True)
class OwnBins:
    """The party's configured special values and cuts of columns of numbers."""

    where: str = ""
    special: Mapping[str, Sequence[float]] = field(default_factory=dict)
    cuts: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, party: PartyConfig) -> Self:
        return cls(f"parties.{name}", party.special, party.cuts)

    def refuse_others(self, names: Sequence[str]) -> None:
        """Raises ConfigError if a configured column is not among these."""
        for key, columns in (("special", self.special), ("cuts", self.cuts)):
            for name in columns:
                if name not in names:
                    raise ConfigError(f"{self.where}.{key}: column {name!r} is not in the table{nearest(name, names)}")

    def fit(self, make: Callable[..., Binning], cells: Numbers, least: int, warn: Callable[[str], None]) -> Binning:
        """Bins of a column's training rows, (rows,); `make` makes the default ones.

        A special value of fewer than `least` rows counts as missing. Raises ConfigError for a column of words,
        DataError if fewer than `least` rows lie between two cuts.
        """
        plain = make(cells=cells)
        special, cuts = self.special.get(plain.name, ()), self.cuts.get(plain.name)
        if not special and cuts is None:
            return plain
        if plain.cuts is None:
            key = "special" if special else "cuts"
            hint = "leave it out: every frequent word has a bin of its own"
            raise ConfigError(f"{self.where}.{key}: column {plain.name!r} is of words, not of numbers", hint=hint)
        counts = {value: int((cells == value).sum()) for value in special}
        self._warn(plain.name, cells[~np.isin(cells, special)], counts, warn)
        alone = sorted((value for value in special if counts[value] >= least), key=lambda value: -counts[value])
        while alone and len(cells) - sum(counts[value] for value in alone) < least:
            alone.pop()  # the rows that are left need a bin that is large enough
        rest = cells[~np.isin(cells, alone)]
        rest = np.where(np.isin(rest, special), np.nan, rest)
        found = make(cells=rest) if cuts is None else self._cut(plain.name, np.array(cuts), rest, least)
        places = {value: found.count + number for number, value in enumerate(alone)}
        return replace(found, special=tuple((value, places.get(value, found.missing)) for value in special))

    def _cut(self, name: str, cuts: Numbers, cells: Numbers, least: int) -> Binning:
        present = cells[~np.isnan(cells)]
        counts = np.bincount(np.searchsorted(cuts, present), minlength=len(cuts) + 1)
        small = int(counts.argmin())
        if counts[small] < least:
            low = f"above {cuts[small - 1]:g}" if small else "from the least number"
            high = f"up to {cuts[small]:g}" if small < len(cuts) else "to the largest"
            raise DataError(
                f"{self.where}.cuts: column {name!r} has {counts[small]} training rows {low} {high}, and a bin needs "
                f"{least}: sums over few rows would show what they are sums of",
                hint="leave a cut out, or lower federation.protocol.least",
                shared="a bin between its own cuts has too few rows",
            )
        median = int(np.searchsorted(cuts, np.median(present)))
        return Binning(name, cuts, missing=len(cuts) + 1 if len(cells) - len(present) >= least else median)

    def _warn(self, name: str, numbers: Numbers, counts: Mapping[float, int], warn: Callable[[str], None]) -> None:
        """Warns of special values that no row has, and of those among the column's other numbers."""
        for value, count in counts.items():
            said = f"{self.where}.special: {value:g} of column {name!r}"
            if not count:
                warn(f"{said} is in no training row")
            elif np.nanmin(numbers, initial=value) < value < np.nanmax(numbers, initial=value):
                warn(
                    f"{said} lies among its other numbers, {np.nanmin(numbers):g} to {np.nanmax(numbers):g}: rows in "
                    "which it is a number count as special too"
                )


@dataclass(frozen=True, eq=False)
class BinnedTable:
    """Rows of a party's table as bins of the k columns with at least two bins: uint8 or uint16 (rows, k)."""

    columns: tuple[Binning, ...]
    codes: Codes

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, for the party alone."""
        return tuple(column.name for column in self.columns)

    @property
    def counts(self) -> tuple[int, ...]:
        """Bins of each column, including that of missing values."""
        return tuple(column.count for column in self.columns)

    def one_hot(self, rows: Tensor) -> Bins:
        """Matrix of rows, int64 (m,), for sums under encryption: (sum of `counts`, m), a 1 for each row and column."""
        return Bins(self.codes[rows.numpy()], self.counts)

    def sides(self, column: int, left: NDArray[np.bool_], rows: Tensor | None = None) -> NDArray[np.bool_]:
        """True for rows (all, or int64 (m,)) on the left side of a split, as in `Binning.refuse`.

        Raises InputError if the column or the split is invalid.
        """
        if not 0 <= column < len(self.columns):
            raise InputError(f"column {column} of {len(self.columns)}")
        self.columns[column].refuse(left)
        codes = self.codes[:, column]
        return left[codes if rows is None else codes[rows.numpy()]]


def _words(table: Features) -> Sequence[tuple[str, ...] | None]:
    return [field.words for field in table.fields] or [None] * len(table.names)


def _numbers(cells: Tensor) -> Numbers:
    return np.ascontiguousarray(cells.numpy(), dtype=np.float64)
