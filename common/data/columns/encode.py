"""Encoding of a party's values for its models: numbers scaled, words one-hot, fitted on its own training rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Missing, ScaleConfig, Unseen
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.columns.scale import Scaler, TableRows
from colonnade.common.errors import DataError

MOST_WORDS = 1000
"""Maximum categories of a column. Each becomes a column, so a name or a key among the features is a mistake."""

_NAMED = 5  # rows in a message: each is looked up in the file


@dataclass(frozen=True)
class EncodeConfig:
    scale: ScaleConfig
    missing: Missing = "refuse"
    unseen: Unseen = "refuse"


@dataclass(frozen=True)
class Code:
    """Encoding of one typed column.

    Args:
        words: those in training rows, ascending, one column of 0 and 1 each; None for numbers.
        fill: replacement of a missing number; None where none may be missing.
        own: True if a missing word has a column of its own, the last.
    """

    name: str
    words: tuple[str, ...] | None = None
    fill: float | None = None
    own: bool = False

    @property
    def width(self) -> int:
        return 1 if self.words is None else len(self.words) + self.own


@dataclass(frozen=True)
class Encoder:
    """Encoder fitted on a party's training rows.

    Args:
        scaler: for plain values, or for the numeric columns among typed columns.
        codes: one per typed column; none for plain values.
    """

    config: EncodeConfig
    scaler: Scaler
    codes: tuple[Code, ...] = ()

    @classmethod
    def fit(
        cls, config: EncodeConfig, features: Features, train_rows: Tensor, ordered: Tensor | None = None
    ) -> Encoder:
        """Fits the words, the replacements of missing values, the shifts and the spreads on rows `train_rows`, int64
        (m,), alone.

        `ordered` has the values of these rows first, where that is faster than selecting them. Raises DataError if a
        column has too many categories, or lacks values that may not be missing.
        """
        if not features.fields:
            return cls(config, _finite(Scaler.fit(config.scale, features.values, train_rows), features.names))
        training = TableRows(features.values, train_rows) if ordered is None else TableRows(ordered[: len(train_rows)])
        gaps = training.gaps()
        if config.missing == "refuse" and (lacking := [place for place, count in enumerate(gaps) if count]):
            raise _missing(features.fields[lacking[0]].name, gaps[lacking[0]])
        codes = _fitted(features.fields, training, config, gaps)
        if not sum(code.width for code in codes):
            raise DataError(
                "no column is left as a feature: none of them has a word in training rows",
                hint="bring a column with values; with `missing: mean` a missing word is a category of its own",
                shared="its table has no values to learn from",
            )
        names = [code.name for code in codes if code.words is None]
        if not names or not len(training):
            return cls(config, Scaler.none(), codes)
        numbers = replace(training, change=partial(_numbers, codes=codes, gaps=gaps))
        return cls(config, _finite(Scaler.of_rows(config.scale, numbers), names), codes)

    def named(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """For each encoded column its name and the table column's, given the table's names. A column of words has one
        per word.
        """
        if not self.codes:
            return [(name, name) for name in names]
        found = list[tuple[str, str]]()
        for code in self.codes:
            own = [f"{code.name} missing"] if code.own else []
            words = [code.name] if code.words is None else [*(f"{code.name}={word}" for word in code.words), *own]
            found += [(word, code.name) for word in words]
        return found

    def apply(self, features: Features) -> Tensor:
        """The encoded values: float32 (n, ...) of plain ones, (n, width) of typed columns.

        Raises DataError if the columns differ from the fitted ones, or a value is missing or a word unseen where
        `config` refuses.
        """
        if not self.codes:
            self._check(features)
            return self.scaler.apply(features.values)
        made, end = torch.empty(len(features.values), self.width), 0
        for block in self.blocks(features):
            begin, end = end, end + len(block)
            made[begin:end] = block
        return made

    @property
    def width(self) -> int:
        """Number of encoded columns of a typed table."""
        return sum(code.width for code in self.codes)

    def blocks(self, features: Features) -> Iterator[Tensor]:
        """`apply` to typed columns, block by block; it raises before the first or after the last."""
        self._check(features)
        gaps = TableRows(features.values).gaps()
        for code, count in zip(self.codes, gaps, strict=True):
            if count and (self.config.missing == "refuse" or (code.words is None and code.fill is None)):
                raise _missing(code.name, count)
        starts = [0, *accumulate(code.width for code in self.codes)]
        into = [start for start, code in zip(starts, self.codes, strict=False) if code.words is None]
        words = {
            place: _Words(code, field)
            for place, (code, field) in enumerate(zip(self.codes, features.fields, strict=True))
            if code.words is not None
        }
        for values in TableRows(features.values):
            made = torch.zeros(len(values), self.width)
            for place, column in words.items():
                column.mark(values[:, place], made[:, starts[place] : starts[place + 1]])
            if into:
                self._scale(values, gaps, into, made)
            yield made
        if self.config.unseen == "refuse":
            for place, column in words.items():
                if column.unseen:
                    raise column.refused(features, place)

    def _scale(self, values: Tensor, gaps: Sequence[int], into: Sequence[int], made: Tensor) -> None:
        """Writes the scaled numbers of a block into these columns."""
        scaled = self.scaler.apply(_numbers(values, self.codes, gaps))
        # A sum with NaN or infinity is neither: one pass, without a mask. Few sums of numbers overflow.
        if not math.isfinite(float(scaled.sum())) and not bool(scaled.isfinite().all()):
            names = [code.name for code in self.codes if code.words is None]
            raise _too_large(names[int((~scaled.isfinite()).any(0).nonzero()[0])])
        if len(into) == made.shape[1]:
            made[:] = scaled
        else:
            for place, column in enumerate(into):
                made[:, column] = scaled[:, place]

    def _check(self, features: Features) -> None:
        expected = [(code.name, "numbers" if code.words is None else "words") for code in self.codes]
        found = [(field.name, "numbers" if field.words is None else "words") for field in features.fields]
        if expected == found:
            return
        differing = (pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1])
        was, now = next(differing, ((f"{len(expected)} columns", ""), (f"{len(found)} columns", "")))
        raise DataError(
            f"the table has {' of '.join(filter(None, now))} where training had {' of '.join(filter(None, was))}",
            hint="give the columns of training, and say no other `types` of them",
            shared="its table has other columns than in training",
        )


class _Words:
    """Marks a column of words block by block; `unseen` counts rows with a word that no training row has."""

    def __init__(self, code: Code, field: TypedColumn) -> None:
        assert code.words is not None
        known = {word: place for place, word in enumerate(code.words)}
        self._name, self._words, self._own = code.name, field.words or (), code.own
        self._of = torch.tensor([known.get(word, -1) for word in self._words] + [len(known) if code.own else -1])
        self._first, self._rows, self.unseen = list[int](), 0, 0

    def mark(self, codes: Tensor, into: Tensor) -> None:
        """Sets a 1 in each row's category, if it has one."""
        marks = self._of[codes.nan_to_num(len(self._words)).to(torch.int64)]
        rows = torch.nonzero(marks >= 0).squeeze(1)
        into[rows, marks[rows]] = 1.0
        if len(rows) < len(marks) and (unseen := (marks < 0) & ~codes.isnan()).any():
            new = torch.nonzero(unseen).squeeze(1)
            self.unseen += len(new)
            self._first += (new[: _NAMED - len(self._first)] + self._rows).tolist()
        self._rows += len(codes)

    def refused(self, features: Features, place: int) -> DataError:
        word = self._words[int(features.values[self._first[0], place])]
        return DataError(
            _new_words(features, self._name, self._first, self.unseen, word),
            hint="mend the cells, or leave these rows out of the table: all others can then be used; a run that is "
            "begun with `unseen: zero` takes them as of no category; if the column says who a row is about, it is "
            "the `key`, and no feature",
            shared="its table has values that were not seen in training, and its `unseen` is refuse",
        )


def _new_words(features: Features, name: str, rows: Sequence[int], many: int, word: str) -> str:
    count = "1 row has a word" if many == 1 else f"{many} rows have words"
    said = f"{count} that no training row has, as {word!r}"
    if features.place is None:
        return f"column {name!r}: {said}"
    first, *others = sorted(map(features.place, rows), key=_by_line)
    named = "".join(f", {place.rpartition(', ')[2]}" for place in others)
    return f"{first}{named}{', ..' if many > _NAMED else ''}, column {name!r}: {said}"


def _by_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(" ")
    return file, int(line) if line.isdigit() else 0


def _fitted(
    fields: Sequence[TypedColumn], training: TableRows, config: EncodeConfig, gaps: Sequence[int]
) -> tuple[Code, ...]:
    words = {place: np.zeros(len(of.words), np.int64) for place, of in enumerate(fields) if of.words is not None}
    numbers = [place for place in range(len(fields)) if place not in words]
    averaged = numbers if config.missing == "mean" else []
    sums = dict.fromkeys(averaged, 0.0)
    for block in training if words or averaged else ():
        for place, counts in words.items():
            codes = _present(block[:, place]).astype(np.int64)
            np.add(counts, np.bincount(codes, minlength=len(counts)), out=counts)
        for place in averaged:
            sums[place] += float(_present(block[:, place]).sum())
    fills: dict[int, float | None] = dict.fromkeys(numbers, None if config.missing == "refuse" else 0.0)
    for place in averaged:
        if present := len(training) - gaps[place]:
            fills[place] = sums[place] / present
    if config.missing == "median":
        for place, column in zip(numbers, training.columns(numbers), strict=True):
            if len(there := _present(column)):
                fills[place] = float(np.median(there))
    own = config.missing in ("mean", "median")
    return tuple(
        Code(of.name, fill=fills[place])
        if place in fills
        else Code(of.name, _in_training(of, words[place]), own=own and gaps[place] > 0)
        for place, of in enumerate(fields)
    )


def _in_training(field: TypedColumn, counts: np.ndarray) -> tuple[str, ...]:
    """The words that training rows have. Raises DataError if they are too many."""
    found = tuple((field.words or ())[code] for code in np.flatnonzero(counts))
    if len(found) > MOST_WORDS:
        raise DataError(
            f"column {field.name!r} has {len(found)} categories, more than {MOST_WORDS}",
            hint="leave it out with `drop`, or declare it a number under `types`",
        )
    return found


def _present(column: Tensor) -> np.ndarray:
    # Sums of other strides may be rounded otherwise.
    return np.ascontiguousarray(column[~column.isnan()].numpy())


def _numbers(values: Tensor, codes: Sequence[Code], gaps: Sequence[int]) -> Tensor:
    """Numeric columns, float64 (n, k), filled where `gaps`; the result may be `values` itself, unchanged."""
    places = [place for place, code in enumerate(codes) if code.words is None]
    found = values if len(places) == len(codes) else values[:, places]
    if found is values and any(gaps):
        found = values.clone()
    for column, place in enumerate(places):
        fill = codes[place].fill
        if gaps[place] and fill is not None:
            found[found[:, column].isnan(), column] = fill
    return found


def _finite(scaler: Scaler, names: Sequence[str]) -> Scaler:
    """Raises DataError if the deviation of a column overflows."""
    for numbers in (scaler.shift, scaler.spread):
        if not bool((found := numbers.isfinite()).all()):
            raise _too_large(names[int((~found).flatten().nonzero()[0])] if names and found.ndim == 1 else "")
    return scaler


def _too_large(name: str) -> DataError:
    return DataError(
        f"{f'column {name!r}: its' if name else 'the'} numbers are too large to be scaled",
        hint="is one of them a mark for a missing value? Else write the column in another unit",
        shared="its table has numbers that are too large",
    )


def _missing(name: str, count: int) -> DataError:
    return DataError(
        f"column {name!r} lacks {count} values",
        hint="fill them in, or say with `missing` what stands in for them",
        shared="its table lacks values, and its `missing` is refuse",
    )
