"""Encoding of a party's values for its models: numbers scaled, words one-hot, fitted on its own training rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Missing, ScaleConfig, Unseen
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import TypedColumn
from colonnade.common.data.columns.scale import Scaler
from colonnade.common.errors import DataError

MOST_WORDS = 1000
"""Maximum categories of a column. Each becomes a column, so a name or a key among the features is a mistake."""

_NAMED = 5  # rows in a message: each is looked up in the file
_BLOCK = 65_536  # rows that are scaled at a time


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
    def fit(cls, config: EncodeConfig, features: Features, train_rows: Tensor) -> Encoder:
        """Fits the words, the replacements of missing values, the shifts and the spreads on rows `train_rows`, int64
        (m,), alone.

        Raises:
            DataError: a column has too many categories, or lacks values that may not be missing.
        """
        if not features.fields:
            return cls(config, _finite(Scaler.fit(config.scale, features.values, train_rows), features.names))
        training = features.values[train_rows]
        gaps = _with_gaps(training)
        codes = tuple(
            _fitted(field, training[:, place].numpy(), config, gaps=gaps[place])
            for place, field in enumerate(features.fields)
        )
        if not sum(code.width for code in codes):
            raise DataError(
                "no column is left as a feature: none of them has a word in training rows",
                hint="bring a column with values; with `missing: mean` a missing word is a category of its own",
                shared="its table has no values to learn from",
            )
        numbers = _numbers(training, codes, gaps)
        if not numbers.numel():
            return cls(config, Scaler.none(), codes)
        names = [code.name for code in codes if code.words is None]
        return cls(config, _finite(Scaler.of_all(config.scale, numbers), names), codes)

    def named(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Of each encoded column its name, and that of the column in the table, whose names these are.

        A column of words has one for each word.
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

        Raises:
            DataError: the columns differ from the fitted ones, or a value is missing or a word unseen where `config`
                refuses.
        """
        self._check(features)
        if not self.codes:
            return self.scaler.apply(features.values)
        gaps = _with_gaps(features.values)
        for place, code in enumerate(self.codes):
            if gaps[place] and code.words is None and code.fill is None:
                raise _missing(code.name, int(features.values[:, place].isnan().sum()))
        made = torch.zeros(len(features.values), sum(code.width for code in self.codes))
        start, numbers = 0, list[int]()
        for place, (code, field) in enumerate(zip(self.codes, features.fields, strict=True)):
            if field.words is None:
                numbers.append(start)
            else:
                self._mark(made[:, start : start + code.width], code, features, place)
            start += code.width
        if numbers:
            self._scale(features.values, gaps, numbers, made)
        return made

    def _scale(self, values: Tensor, gaps: Sequence[bool], into: Sequence[int], made: Tensor) -> None:
        """Writes the scaled numbers into these columns: float64 copies are made of a block, not of the table."""
        for begin in range(0, len(values), _BLOCK):
            some = slice(begin, begin + _BLOCK)
            scaled = self.scaler.apply(_numbers(values[some], self.codes, gaps))
            # A sum with NaN or infinity is neither: one pass, without a mask. Few sums of numbers overflow.
            if not math.isfinite(float(scaled.sum())) and not bool(scaled.isfinite().all()):
                names = [code.name for code in self.codes if code.words is None]
                raise _too_large(names[int((~scaled.isfinite()).any(0).nonzero()[0])])
            if len(into) == made.shape[1]:
                made[some] = scaled
            else:
                for place, column in enumerate(into):
                    made[some, column] = scaled[:, place]

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

    def _mark(self, into: Tensor, code: Code, features: Features, column: int) -> None:
        """Sets a 1 in each row's category, if it has one."""
        assert code.words is not None
        words, codes = features.fields[column].words or (), features.values[:, column]
        known = {word: place for place, word in enumerate(code.words)}
        of = torch.tensor([known.get(word, -1) for word in words] + [len(known) if code.own else -1])
        absent = codes.isnan()
        self._refuse_missing(code.name, absent)
        marks = of[codes.nan_to_num(len(words)).to(torch.int64)]
        if self.config.unseen == "refuse" and (unseen := (marks < 0) & ~absent).any():
            new = torch.nonzero(unseen).squeeze(1).tolist()
            raise DataError(
                _new_words(features, code.name, new, words[int(codes[new[0]])]),
                hint="mend the cells, or leave these rows out of the table: all others can then be used; a run that is "
                "begun with `unseen: zero` takes them as of no category; if the column says who a row is about, it is "
                "the `key`, and no feature",
                shared="its table has values that were not seen in training, and its `unseen` is refuse",
            )
        rows = torch.nonzero(marks >= 0).squeeze(1)
        into[rows, marks[rows]] = 1.0

    def _refuse_missing(self, name: str, absent: Tensor) -> None:
        if self.config.missing == "refuse" and absent.any():
            raise _missing(name, int(absent.sum()))


def _new_words(features: Features, name: str, rows: Sequence[int], word: str) -> str:
    count = "1 row has a word" if len(rows) == 1 else f"{len(rows)} rows have words"
    said = f"{count} that no training row has, as {word!r}"
    if features.place is None:
        return f"column {name!r}: {said}"
    first, *others = sorted(map(features.place, rows[:_NAMED]), key=_by_line)
    named = "".join(f", {place.rpartition(', ')[2]}" for place in others)
    return f"{first}{named}{', ..' if len(rows) > _NAMED else ''}, column {name!r}: {said}"


def _by_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(" ")
    return file, int(line) if line.isdigit() else 0


def _with_gaps(values: Tensor) -> list[bool]:
    """For every column (n, columns), True if a value is missing."""
    # A sum with NaN is NaN: one pass, without a copy. Few sums of numbers are, so those are looked at.
    doubtful = values.sum(0).isnan().tolist()
    return [doubt and bool(values[:, place].isnan().any()) for place, doubt in enumerate(doubtful)]


def _fitted(field: TypedColumn, values: np.ndarray, config: EncodeConfig, *, gaps: bool) -> Code:
    present = values[~np.isnan(values)] if gaps else values
    if config.missing == "refuse" and gaps:
        raise _missing(field.name, len(values) - len(present))
    if field.words is None:
        return Code(field.name, fill=_fill(present, config.missing))
    counts = np.bincount(present.astype(np.int64), minlength=len(field.words))
    words = tuple(field.words[code] for code in np.flatnonzero(counts))
    if len(words) > MOST_WORDS:
        raise DataError(
            f"column {field.name!r} has {len(words)} categories, more than {MOST_WORDS}",
            hint="leave it out with `drop`, or declare it a number under `types`",
        )
    return Code(field.name, words, own=gaps and config.missing in ("mean", "median"))


def _fill(present: np.ndarray, missing: Missing) -> float | None:
    if missing == "refuse":
        return None
    if missing == "zero" or not len(present):
        return 0.0
    present = np.ascontiguousarray(present)  # sums of other strides may be rounded otherwise
    return float(present.mean() if missing == "mean" else np.median(present))


def _numbers(values: Tensor, codes: Sequence[Code], gaps: Sequence[bool]) -> Tensor:
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
