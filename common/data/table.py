"""A table of any format: one pass, only the requested columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import torch

from colonnade.common.data.columns import cells, looks
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import Doubt, Type, TypedColumn
from colonnade.common.data.columns.notation import PLAIN, Notation
from colonnade.common.data.keys import check_keys
from colonnade.common.errors import DataError, nearest

_NO_LABEL = "fill it in, leave the row out, or where rows are aligned say `missing: drop` of the labels"

BATCH = 65_536
"""Approximate rows per batch; column types are inferred from the first batch."""

_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


class Table(Protocol):
    """A table whose header has been read.

    Attributes:
        header: the columns' names.
    """

    @property
    def header(self) -> tuple[str, ...]:
        """The columns' names."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in order. Raises DataError if the table is malformed."""

    def place(self, row: int) -> str:
        """Location of a row, given its number from 0: `FILE, line 7`."""

    def __str__(self) -> str:
        """The table's name in messages."""


def require(table: Table, columns: Sequence[str]) -> None:
    """Raises DataError unless the table has all these columns."""
    for column in columns:
        if column not in table.header:
            lone = len(table.header) == 1 and "; is the file's `delimiter` another?"
            data = any(_NUMBER.fullmatch(name) for name in table.header) and "; is the first line no header?"
            raise DataError(
                f"{table} has no column {column!r}{nearest(column, table.header)}",
                hint=f"its columns ({len(table.header)}) begin with {', '.join(table.header[:6])}{lone or data or ''}",
            )


def require_names(table: Table, columns: Sequence[str]) -> None:
    """Raises DataError unless there is at least one feature column and all of them have names."""
    if not columns:
        raise DataError(
            f"{table}: no column is left as a feature",
            hint="a party brings one at least beside the key: look at `columns` and `drop`",
        )
    if nameless := [column for column in columns if not column.strip()]:
        place = table.header.index(nameless[0]) + 1
        raise DataError(
            f"{table}: column {place} of {len(table.header)} has no name",
            hint=f"name it in the header, or leave it out with `drop: [{nameless[0]!r}]`",
        )


@dataclass(frozen=True)
class TableColumns:
    """Typed columns of a table, and its keys.

    Args:
        table: the table.
        names: the columns that are features.
        key: the key column, if there is one.
        types: declared column types; the others are inferred from the first cells.
        gaps: True if values may be missing.
        notation: of numbers in text.
        units: before or after numbers in text, by column.
    """

    table: Table
    names: tuple[str, ...]
    key: str | None = None
    types: Mapping[str, Type] = field(default_factory=dict)
    gaps: bool = False
    notation: Notation = PLAIN
    units: Mapping[str, str] = field(default_factory=dict)

    def features(self) -> Features:
        """The columns, in one pass.

        Raises:
            DataError: the table is malformed or empty, a cell does not have its column's type or is missing where that
                is not allowed, or keys are not unique.
        """
        reading = _Reading(self)
        for batch in self.table.batches((*reading.names, *([] if self.key is None else [self.key]))):
            reading.add(batch)
        return reading.done()


def read_words(
    table: Table, column: str, key: str | None, *, gaps: bool = False
) -> tuple[list[str | None], tuple[str, ...] | None]:
    """A column's cells as words, and the rows' keys, or None without a key column.

    Args:
        gaps: True if cells may be missing; they are None then.

    Raises:
        DataError: the table is malformed or empty, a cell is missing, or keys are not unique.
    """
    found: list[str | None] = []
    keys: list[str] = []
    for batch in table.batches((column, *([] if key is None else [key]))):
        with _telling(table, column, len(found)):
            said = batch.column(0)
            words = cells.words(cells.without_nan(said)) if gaps else cells.words(said)
            found += words.to_pylist() if gaps else cells.whole(words, _NO_LABEL)
        if key is not None:
            with _telling(table, key, len(keys)):
                keys += cells.keys(batch.column(1))
    if not found:
        raise _no_rows(table)
    return found, _checked(table, key, keys)


class _Reading:
    """State of reading a table: a growing matrix, words by column, keys."""

    def __init__(self, source: TableColumns) -> None:
        names = self.names = source.names
        self._source, self._table = source, source.table
        self._values, self._rows = np.empty((0, len(names))), 0
        self._readings: list[cells.Reading] = []
        self._doubts: list[Doubt] = []
        self._codes: list[dict[str, int]] = [{} for _ in names]
        self._keys: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if not self._readings:
            self._readings = self._all_readings(batch)
        end = self._rows + batch.num_rows
        if end > len(self._values):
            # In place where the allocator can, without a second copy.
            self._values.resize((max(end, len(self._values) * 3 // 2), len(self.names)), refcheck=False)
        for place, name in enumerate(self.names):
            self._values[self._rows : end, place] = self._column(place, name, batch.column(place))
        if (key := self._source.key) is not None:
            with _telling(self._table, key, self._rows):
                self._keys += cells.keys(batch.column(len(self.names)))
        self._rows = end

    def done(self) -> Features:
        if not self._rows:
            raise _no_rows(self._table)
        self._values.resize((self._rows, len(self.names)), refcheck=False)
        fields = tuple(self._field(place, name) for place, name in enumerate(self.names))
        ids = _checked(self._table, self._source.key, self._keys)
        return Features(torch.from_numpy(self._values), self.names, 0, ids, fields, tuple(self._doubts))

    def _all_readings(self, batch: pa.RecordBatch) -> list[cells.Reading]:
        """Reading settings of all columns. The error names every column that cannot be read, not only the first."""
        found, wrong = [], {}
        for place, name in enumerate(self.names):
            try:
                found.append(self._reading(name, batch.column(place)))
            except cells.Misfit as misfit:
                wrong[name] = misfit
        if wrong:
            name, first = next(iter(wrong.items()))
            with _telling(self._table, name, 0):
                raise first if len(wrong) == 1 else _together(wrong, first)
        return found

    def _reading(self, name: str, column: pa.Array) -> cells.Reading:
        unit = self._source.units.get(name, "")
        type = self._source.types.get(name) or ("number" if unit else self._guessed(name, column))
        return cells.Reading(type, self._source.notation, unit)

    def _guessed(self, name: str, column: pa.Array) -> Type:
        if cells.is_number(column):
            return "number"
        if not cells.is_text(column):
            ways = ["leave it out with `drop`, convert it, or declare it a `category` under `types`"]
            if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
                ways.insert(0, f"{looks.declared(name, 'date')} makes days of it")
            raise cells.Misfit(0, f"is of type {column.type}, neither a number nor a word", *ways)
        kind, doubts = looks.guess(name, column, self._source.notation)
        self._doubts += doubts
        return kind

    def _column(self, place: int, name: str, column: pa.Array) -> np.ndarray:
        reading = self._readings[place]
        with _telling(self._table, name, self._rows):
            values = self._coded(place, column) if reading.type == "category" else self._numbers(name, reading, column)
            if not self._source.gaps and (absent := np.isnan(values)).any():
                hint = "fill it in, leave the row out, or say with `missing` what stands in for it"
                raise cells.Misfit(int(absent.argmax()), "the value is missing", hint)
        return values

    def _numbers(self, name: str, reading: cells.Reading, column: pa.Array) -> np.ndarray:
        try:
            return reading.numbers(column)
        except cells.Misfit as misfit:
            if reading.type == "number" and cells.is_text(column):
                text = cells.written(column)
                misfit.hint = looks.meant(name, text, misfit.row, reading.notation) or misfit.hint
            raise

    def _coded(self, place: int, column: pa.Array) -> np.ndarray:
        found, codes = cells.words(column).dictionary_encode(), self._codes[place]
        of = np.array([codes.setdefault(word, len(codes)) for word in found.dictionary.to_pylist()] + [np.nan])
        coded: np.ndarray = of[found.indices.fill_null(len(of) - 1).to_numpy(zero_copy_only=False)]
        return coded

    def _field(self, place: int, name: str) -> TypedColumn:
        """The typed column; words ascend, so that codes do not depend on the order of rows."""
        if self._readings[place].type != "category":
            return TypedColumn(name)
        codes = self._codes[place]
        ascending = sorted(codes)
        order = np.full(len(codes) + 1, np.nan)  # the last for missing words
        order[[codes[word] for word in ascending]] = np.arange(len(ascending))
        column = self._values[:, place]
        column[:] = order[np.nan_to_num(column, nan=len(codes)).astype(np.int64)]
        return TypedColumn(name, tuple(ascending))


def _together(wrong: Mapping[str, cells.Misfit], first: cells.Misfit) -> cells.Misfit:
    others = ", ".join(repr(name) for name in [*wrong][1:])
    hint = "; ".join(f"{name!r}: {misfit.remedy}" for name, misfit in wrong.items())
    otherwise = "words and codes are declared a `category` under `types`"
    return cells.Misfit(first.row, f"{first}; so it is with {others}", hint, otherwise)


@contextmanager
def _telling(table: Table, column: str, done: int) -> Iterator[None]:
    """Converts a Misfit, after `done` rows, to a DataError that locates the cell."""
    try:
        yield
    except cells.Misfit as misfit:
        what = f"{table.place(done + misfit.row)}, column {column!r}: {misfit}"
        raise DataError(what, hint=misfit.hint) from None


def _checked(table: Table, key: str | None, keys: Sequence[str]) -> tuple[str, ...] | None:
    if key is None:
        return None
    check_keys(keys, f"{table}, column {key!r}", table.place)
    return tuple(keys)


def _no_rows(table: Table) -> DataError:
    return DataError(f"{table} has columns but no rows", hint="every row is about one person, or thing")
