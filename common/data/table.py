"""A table of any format: one pass, only the requested columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from colonnade.common.config.data.columns import Type
from colonnade.common.config.data.tables import Key, columns_of
from colonnade.common.data.columns import cells, looks
from colonnade.common.data.columns.cells import NUMBER, PLAIN, Notation
from colonnade.common.data.columns.features import Doubt, Features, TypedColumn
from colonnade.common.data.columns.sentinels import suspects
from colonnade.common.data.key_checks import key_doubts, refuse_fractions, refuse_repeated, short_words
from colonnade.common.data.keys import KeyColumn
from colonnade.common.data.on_disk import DiskMatrix
from colonnade.common.errors import DataError, nearest
from colonnade.common.run.device import release_free_memory

_NO_LABEL = "fill it in, leave the row out, or where rows are aligned say `missing: drop` of the labels"

BATCH = 65_536
"""Approximate rows per batch; column types are inferred from the first batch."""

_FIRST = 1000  # rows

_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?", re.ASCII)


class Table(Protocol):
    """A table whose header, the columns' names, has been read."""

    @property
    def header(self) -> tuple[str, ...]:
        pass

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in order. Raises DataError if the table is malformed."""

    def place(self, row: int) -> str:
        """Location of a row, given its number from 0: `FILE, line 7`."""

    def __str__(self) -> str:
        """The table's name in messages."""


@runtime_checkable
class ParsesNumbers(Protocol):
    """A table of text that converts plain numbers faster than cell by cell."""

    def parsed(self, columns: Sequence[str], numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """`batches` with the columns `numbers` as float64, null where a number is missing.

        May raise any error for a cell or line that `batches` accepts or describes better.
        """


@runtime_checkable
class Described(Protocol):
    """A table whose schema says more of its columns than their values do.

    Attributes:
        index: names of those that are a row index of pandas: they are no features unless they are named.
        unwritten: names of an index without a column.
        categories: names of those that are categories by their type, also of numbers.
    """

    index: tuple[str, ...]
    unwritten: tuple[str, ...]
    categories: tuple[str, ...]


@runtime_checkable
class Doubted(Protocol):
    """A table whose opening has found something that its owner should look at."""

    doubts: tuple[Doubt, ...]


class Marked:
    """A table in which cells with a mark for a missing value are null, in every column.

    Args:
        marks: case-sensitive. A number stands for all notations of it, and for what a column's type makes of it; a
            date, as 1900-01-01, for that day in a column of dates or times.
        units: by column, before or after numbers in text.
    """

    def __init__(self, table: Table, marks: Sequence[str], notation: Notation, units: Mapping[str, str]) -> None:
        self._table, self.marks, self._notation, self._units = table, tuple(marks), notation, units
        self._marks = pa.array(marks)
        days = cells.days(cells.dates(self._marks))
        self.days = days[~np.isnan(days)]
        self._numbers = [mark for mark in marks if NUMBER.fullmatch(mark)]
        described = table if isinstance(table, Described) else None
        self.index: tuple[str, ...] = described.index if described else ()
        self.unwritten: tuple[str, ...] = described.unwritten if described else ()
        self.categories: tuple[str, ...] = described.categories if described else ()
        self.doubts: tuple[Doubt, ...] = table.doubts if isinstance(table, Doubted) else ()

    @property
    def header(self) -> tuple[str, ...]:
        return self._table.header

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _decoded(self._table, columns) as batches:
            for batch in batches:
                cured = map(self._without, batch.columns, columns)
                yield pa.RecordBatch.from_arrays([*cured], list(columns))

    def place(self, row: int) -> str:
        return self._table.place(row)

    def __str__(self) -> str:
        return str(self._table)

    def _without(self, column: pa.Array, name: str) -> pa.Array:
        """The column with marked cells replaced by null."""
        if cells.is_text(column):
            text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
            found = pc.is_in(text, self._marks)
            spaced = cells.spaced(text)
            bare = [spaced, *([cells.without_unit(spaced, self._units[name])] if name in self._units else [])]
            for one in bare if self._numbers else ():
                numbers = pc.if_else(self._notation.fits(one), one, pa.scalar(None, pa.string()))
                found = pc.or_(found, cells.among(self._notation.plain(numbers), self._numbers))
        elif cells.is_number(column) and not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
            found = cells.among(column, self._numbers)
        elif len(self.days) and (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            found = pc.is_in(pc.floor(pa.array(cells.days(column), from_pandas=True)), pa.array(self.days))
        else:
            return column
        return pc.if_else(found, pa.scalar(None, column.type), column)


class Beside:
    """Columns that are read in the same pass as others, as a table of their own.

    A query may give other rows, or the same in another order, whenever it is executed: what is read of it row by row
    has to come from one execution. Where nothing was read (there is a copy of the others), a pass over the table
    follows.
    """

    def __init__(self, table: Table, names: Iterable[str]) -> None:
        self._table, self.header = table, tuple(dict.fromkeys(names))
        self._read: list[pa.RecordBatch] | None = None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._read is None:
            yield from self._table.batches(columns)
        else:
            yield from (batch.select(list(columns)) for batch in self._read)

    def place(self, row: int) -> str:
        return self._table.place(row)

    def __str__(self) -> str:
        return str(self._table)

    def passed(self, read: _Reader, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The batches of a pass over other columns. Only the last pass that was read to its end counts."""
        places = {name: place for place, name in enumerate(dict.fromkeys((*columns, *self.header)))}
        asked, own, found = [*places], [places[name] for name in self.header], list[pa.RecordBatch]()
        self._read, batches = None, read(asked)
        with closing(batches) if isinstance(batches, Generator) else nullcontext():
            for batch in batches:
                found.append(pa.RecordBatch.from_arrays([batch.column(place) for place in own], list(self.header)))
                yield pa.RecordBatch.from_arrays(batch.columns[: len(columns)], list(columns))
        self._read = found


_Reader = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def require(table: Table, columns: Sequence[str]) -> None:
    """Raises DataError unless the table has all these columns."""
    known = set(table.header)
    for column in columns:
        if column not in known:
            if isinstance(table, Described) and column in table.unwritten:
                raise DataError(
                    f"{table} has no column {column!r}: it is the name of a row index, which pandas did not write",
                    hint="write `frame.reset_index()`",
                )
            lone = "; is the file's `delimiter` another?" if len(table.header) == 1 else ""
            lone = lone and ("; is the first line no header?" if table.header[0].startswith("#") else lone)
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
        types: declared column types; the others are inferred from the first cells.
        gaps: True if values may be missing.
        units: by column, before or after numbers in text.
        instead: the configuration's remedy where missing values are refused.
        repeats: True if several rows may have one key.
        disk: folder of a file that takes the values; None for memory.
        doubted: True if numbers are checked like inferred ones because their declaration is not the user's.
        beside: columns of the same table that are read in the same pass.
    """

    table: Table
    names: tuple[str, ...]
    key: Key = None
    types: Mapping[str, Type] = field(default_factory=dict)
    gaps: bool = False
    notation: Notation = PLAIN
    units: Mapping[str, str] = field(default_factory=dict)
    instead: str = "missing: mean"
    repeats: bool = False
    disk: Path | None = None
    doubted: bool = False
    beside: Beside | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The configured marks of a missing value."""
        return self.table.marks if isinstance(self.table, Marked) else ()

    def features(self) -> Features:
        """The columns, in one pass.

        Raises DataError if the table is malformed or empty, a cell does not have its column's type or is missing where
        that is not allowed, or keys are not unique.
        """
        with self._batches() as batches:
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                raise _no_rows(self.table)
            examined, used = self._examined(first, batches)
            types = _Types.of(self, examined)
            numbers = self._plain(types)
            if not numbers and not used:
                return self._whole(types, chain([first], batches))
        del first, examined  # the reader has read ahead: two at a time would take twice the memory
        if not numbers:
            with self._batches() as batches:
                return self._whole(types, batches)
        if (found := self._quickly(types, numbers)) is not None:
            return found
        with self._batches() as batches:
            return self._whole(types, batches)

    @contextmanager
    def _batches(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """The table's batches; its reader, perhaps a database connection, is closed at once."""
        with _decoded(self.table, self._columns, self.beside) as batches:
            yield batches

    def _examined(
        self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
    ) -> tuple[dict[str, tuple[pa.Array, int]], bool]:
        """Cells for inferring each column's type, with the number of rows before them; True if other batches were
        consumed.

        They are from the first batch, or where a text column has no cell there, from the first batch that has some.
        """
        found = {name: (first.column(place), 0) for place, name in enumerate(self.names)}
        empty = {name for name in found if name not in self.types and _without_cells(found[name][0])}
        rows = first.num_rows
        used = bool(empty)
        while empty and (batch := next(others, None)) is not None:
            for place, name in enumerate(self.names):
                if name in empty and not _without_cells(batch.column(place)):
                    found[name] = batch.column(place), rows
                    empty.remove(name)
            rows += batch.num_rows
        return found, used

    def _plain(self, types: _Types) -> list[str]:
        """The columns that the table can convert itself."""
        plain = cells.Reading("number")
        numbers = [name for name, reading in zip(self.names, types.readings, strict=True) if reading == plain]
        return numbers if isinstance(self.table, ParsesNumbers) else []

    def _whole(self, types: _Types, batches: Iterator[pa.RecordBatch]) -> Features:
        reading = _Reading(self, types)
        for batch in batches:
            if batch.num_rows:
                reading.add(batch)
        return reading.done()

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.names, *columns_of(self.key))

    def _quickly(self, types: _Types, numbers: Sequence[str]) -> Features | None:
        """`_whole`, with numbers converted by the table itself; None if anything is wrong.

        The table is then read again cell by cell, which locates the fault.
        """
        assert isinstance(self.table, ParsesNumbers)
        reading = _Reading(self, types, telling=False)
        parsed = partial(self.table.parsed, numbers=numbers)
        try:
            for batch in parsed(self._columns) if self.beside is None else self.beside.passed(parsed, self._columns):
                reading.add(batch)
        except (cells.Misfit, pa.ArrowException, OSError, UnicodeError):
            return None
        return reading.done() if reading.rows else None


@contextmanager
def _decoded(table: Table, columns: Sequence[str], beside: Beside | None = None) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches of a table with plain columns: no dictionaries, views or extensions of types."""
    batches = table.batches(columns) if beside is None else beside.passed(table.batches, columns)
    with closing(batches) if isinstance(batches, Generator) else nullcontext():
        yield (
            pa.RecordBatch.from_arrays([cells.decoded(column) for column in batch.columns], list(columns))
            for batch in batches
        )


@dataclass(frozen=True)
class Words:
    """Cells of a column as words.

    Args:
        codes: index of every row's word in `words`, int32 (n,); -1 if missing.
        words: distinct, in order of occurrence.
        trimmed: number of rows with white space around the word, which is removed.
        doubts: warnings about the rows' keys.
    """

    codes: np.ndarray
    words: tuple[str, ...]
    trimmed: int = 0
    doubts: tuple[Doubt, ...] = ()


def read_words(
    table: Table,
    column: str,
    key: Key,
    *,
    gaps: bool = False,
    repeats: bool = False,
    longest: int = cells.LONGEST,
    fill_in: str = _NO_LABEL,
    beside: Beside | None = None,
) -> tuple[Words, KeyColumn | None]:
    """A column's cells as words, and the rows' keys, or None without a key column.

    Args:
        gaps: True if cells may be missing.
        repeats: True if a key may have several rows.
        longest: most bytes of a word.
        fill_in: the remedy for a missing word.
        beside: columns of the same table that are read in the same pass.
    """
    codes, places = list[np.ndarray](), dict[str, int]()
    keys = _KeyReading(table, columns_of(key), repeats=repeats)
    rows, trimmed = 0, 0
    with _decoded(table, (column, *keys.names), beside) as batches:
        for batch in batches:
            with located(table, column, rows):
                words = cells.words(batch.column(0), longest)
                if cells.is_text(batch.column(0)):
                    trimmed += int(pc.sum(pc.not_equal(words, batch.column(0))).as_py() or 0)
                coded = (words if gaps else cells.whole(words, fill_in)).dictionary_encode()
            own = [places.setdefault(word, len(places)) for word in coded.dictionary.to_pylist()]
            of_all = np.array([*own, -1], np.int32)  # a missing cell has -1, which is the last of these
            codes.append(of_all[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
            keys.add(batch.columns[1:], rows)
            rows += batch.num_rows
    if not rows:
        raise _no_rows(table)
    ids, doubts = keys.done()
    return Words(np.concatenate(codes), tuple(places), trimmed, doubts), ids


class _KeyReading:
    """The columns of a table's keys, while they are read. Without `telling`, `Misfit` is raised unlocated."""

    def __init__(self, table: Table, names: tuple[str, ...], *, telling: bool = True, repeats: bool = False) -> None:
        self._table, self.names, self._telling, self._repeats = table, names, telling, repeats
        self._columns: list[list[pa.Array]] = [[] for _ in names]

    def add(self, columns: Sequence[pa.Array], rows: int) -> None:
        """Adds some rows after `rows` others. Raises DataError: a key, or a part of one, is missing."""
        for name, found, column in zip(self.names, self._columns, columns, strict=True):
            with located(self._table, name, rows) if self._telling else nullcontext():
                found.append(cells.keys(column))

    def done(self) -> tuple[KeyColumn | None, tuple[Doubt, ...]]:
        """The keys, and warnings about them; None without key columns. Raises DataError as `refuse_repeated`."""
        if not self.names:
            return None, ()
        columns = list[KeyColumn]()
        for one in self._columns:
            columns.append(_one_column(one))
        release_free_memory()
        joined = joined_keys(columns)
        if not self._repeats:
            refuse_repeated(joined, f"{self._table}, {_named(self.names)}", self._table.place)
        for name, column in zip(self.names, columns, strict=True):
            refuse_fractions(column, f"{self._table}, {_named([name])}")
        doubts = (
            doubt
            for name, column in zip(self.names, columns, strict=True)
            for doubt in key_doubts(column, name, self._table.place)
        )
        return joined, tuple(doubts)


def _one_column(chunks: list[pa.Array]) -> KeyColumn:
    """All chunks of text; each leaves the list once copied, since two copies of all keys would be the table's peak
    memory.
    """
    ends = np.zeros(sum(map(len, chunks)) + 1, np.int64)
    text = np.empty(sum(pc.sum(pc.binary_length(chunk)).as_py() or 0 for chunk in chunks), np.uint8)
    chunks.reverse()
    row = end = 0
    while chunks:
        part, words = KeyColumn(chunks.pop()).parts
        ends[row + 1 : row + len(part)] = part[1:] + end
        text[end : end + len(words)] = words
        row, end = row + len(part) - 1, end + len(words)
    return KeyColumn.of_parts(ends, text)


def joined_keys(columns: Sequence[KeyColumn]) -> KeyColumn:
    """The keys that several columns make, as `taken_apart` of common/config/alignment.py reads them."""
    if len(columns) == 1:
        return columns[0]
    begin, end, nothing = (pa.scalar(text, pa.large_string()) for text in ('["', '"]', ""))
    escaped = [pc.replace_substring(pc.replace_substring(one.text, "\\", "\\\\"), '"', '\\"') for one in columns]
    inside = pc.binary_join_element_wise(*escaped, pa.scalar('","', pa.large_string()))
    return KeyColumn(pc.binary_join_element_wise(begin, inside, end, nothing))


def _named(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


@dataclass(frozen=True)
class _Types:
    """How every column's cells are read, and doubts about it."""

    readings: tuple[cells.Reading, ...]
    doubts: tuple[Doubt, ...]

    @classmethod
    def of(cls, source: TableColumns, examined: Mapping[str, tuple[pa.Array, int]]) -> _Types:
        """Infers them, or takes the declared ones. The error names every column that cannot be read."""
        found, doubts, wrong = [], list[Doubt](), {}
        categories = source.table.categories if isinstance(source.table, Described) else ()
        for name in source.names:
            unit, (column, before) = source.units.get(name, ""), examined[name]
            place = partial(_place, source.table, before)
            try:
                coded = name in categories and not pa.types.is_nested(column.type)
                type = source.types.get(name) or ("number" if unit else "category" if coded else None)
                type = type or _guessed(source, column, place, name, doubts)
            except cells.Misfit as misfit:
                wrong[name] = misfit
            else:
                found.append(cells.Reading(type, source.notation, unit))
                if source.doubted and cells.is_text(column):
                    doubts += looks.of_numbers(name, column, source.notation, place)
        if wrong:
            name, one = next(iter(wrong.items()))
            with located(source.table, name, examined[name][1]):
                raise one if len(wrong) == 1 else _together(wrong, one)
        return cls(tuple(found), tuple(doubts))


def _guessed(
    source: TableColumns, column: pa.Array, place: Callable[[int], str], name: str, doubts: list[Doubt]
) -> Type:
    """The type of cells, which `place` locates by their numbers."""
    if cells.is_number(column):
        sample = column.slice(0, looks.SAMPLE)
        if pa.types.is_integer(column.type) and (pc.max(sample).as_py() or 0) > 2**53:
            doubts += looks.coded(name, pc.cast(sample, pa.string()), place)
        return "number"
    if not cells.is_text(column):
        ways = ["leave it out with `drop`, convert it, or declare it a `category` under `types`"]
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            ways.insert(0, f"{looks.entry(name, 'date')} makes days of it")
        raise cells.Misfit(0, f"is of type {column.type}, neither a number nor a word", *ways)
    kind, found = looks.guess(name, column, source.notation)
    doubts += found
    if kind == "number":
        doubts += looks.of_numbers(name, column, source.notation, place)
    return kind


def _place(table: Table, before: int, row: int) -> str:
    return table.place(before + row)


class _Reading:
    """State of reading a table: a growing matrix, words by column, keys. Without `telling`, `Misfit` is raised
    unlocated.
    """

    def __init__(self, source: TableColumns, types: _Types, *, telling: bool = True) -> None:
        names = self.names = source.names
        self._source, self._table, self._types = source, source.table, types
        self._disk = None if source.disk is None else DiskMatrix(len(names), source.disk)
        self._values, self.rows = np.empty((0, len(names))), 0
        self._codes: list[dict[str, int]] = [{} for _ in names]
        self._kinds = list[pa.DataType]()
        names = columns_of(source.key)
        self._keys = _KeyReading(source.table, names, telling=telling, repeats=source.repeats)
        self._telling = telling

    def add(self, batch: pa.RecordBatch) -> None:
        end = self.rows + batch.num_rows
        if self._disk is not None:
            into = np.empty((batch.num_rows, len(self.names)))
        else:
            if end > len(self._values):
                # In place where the allocator can, without a second copy.
                self._values.resize((max(end, len(self._values) * 3 // 2), len(self.names)), refcheck=False)
            into = self._values[self.rows : end]
        self._kinds = [column.type for column in batch.columns[: len(self.names)]]
        for place, name in enumerate(self.names):
            into[:, place] = self._column(place, name, batch.column(place))
        if self._disk is not None:
            self._disk.append(into)
        self._keys.add(batch.columns[len(self.names) :], self.rows)
        self.rows = end

    def done(self) -> Features:
        """All columns. Raises DataError if keys are not unique."""
        if self._disk is not None:
            self._values = self._disk.mapped()
        else:
            self._values.resize((self.rows, len(self.names)), refcheck=False)
        fields = self._fields()
        ids, doubtful = self._keys.done()
        found = (*self._types.doubts, *self._value_doubts(fields), *doubtful)
        return Features(torch.from_numpy(self._values), self.names, 0, ids, fields, found, disk=self._source.disk)

    def _value_doubts(self, fields: Sequence[TypedColumn]) -> Iterator[Doubt]:
        told = {*self._source.types, *self._source.units, *(doubt.column for doubt in self._types.doubts)}
        kinds = zip(self.names, self._types.readings, strict=True)
        asked = [name if reading.type == "number" and name not in told else "" for name, reading in kinds]
        yield from looks.whole_codes(self._values, asked)
        yield from self._suspects()
        for place, of in enumerate(fields):
            if of.words is not None:
                self._refuse_marked(place, of.words)
                yield from looks.alike(of.name, of.words, self._values[:, place], self._table.place)
                yield from short_words(of.name, of.words, self._values[:, place], self._table.place)
            if of.words and (marks := looks.marks_of_missing(of.words)):
                yield self._marked(place, [of.words[mark] for mark in marks], marks)

    def _refuse_marked(self, place: int, words: Sequence[str]) -> None:
        """Refuses nan, None and the like beside codes that are numbers: no file of a typed format has them as words."""
        if mark := looks.mark_beside_codes(words):
            row = int((self._values[:, place] == words.index(mark)).argmax())
            with located(self._table, self.names[place], row):
                what = f"{mark!r} would be a word of a category, and programs write it for a missing number"
                raise cells.Misfit(0, what, f"say {self._missing([mark])}")

    def _marked(self, place: int, words: Sequence[str], codes: Sequence[int]) -> Doubt:
        """A warning about a category with words, of these codes, that denote missing values."""
        name, found = self.names[place], np.isin(self._values[:, place], codes)
        first = self._table.place(int(found.argmax()))
        what = f"is taken as a category, and {found.sum()} of its cells (first in {first}) are"
        ways = f"if they stand for a missing value, say {self._missing(words)}; else they remain words"
        return Doubt(name, f"{what} {', '.join(map(repr, words))}", ways)

    def _missing(self, marks: Iterable[str]) -> str:
        """The setting that makes cells missing, and the replacement where missing cells are refused."""
        return looks.missing(marks, self._source.marks, more="" if self._source.gaps else self._source.instead)

    def _suspects(self) -> Iterator[Doubt]:
        """Warnings about values that may denote a missing one."""
        for place, found in suspects(self._values, [reading.type for reading in self._types.readings]):
            name, absent = self.names[place], int(np.isnan(self._values[:, place]).sum())
            marks = [_mark(one.value, self._types.readings[place].type, self._kinds[place]) for one in found]
            said = " and ".join(f"{mark} in {one.count}" for mark, one in zip(marks, found, strict=True))
            first = self._table.place(min(one.row for one in found))
            what = f"has {said} of {self.rows - absent} rows (first in {first}), unlike all other values"
            yield Doubt(name, what, f"if that stands for a missing value, say {self._missing(marks)}")

    def _told(self, column: str) -> AbstractContextManager[None]:
        return located(self._table, column, self.rows) if self._telling else nullcontext()

    def _column(self, place: int, name: str, column: pa.Array) -> np.ndarray:
        reading = self._types.readings[place]
        with self._told(name):
            values = self._coded(place, column) if reading.type == "category" else self._numbers(name, reading, column)
            if not self._source.gaps and (absent := np.isnan(values)).any():
                hint = "fill it in, leave the row out, or say with `missing` what stands in for it"
                raise cells.Misfit(int(absent.argmax()), "the value is missing", hint)
        return values

    def _numbers(self, name: str, reading: cells.Reading, column: pa.Array) -> np.ndarray:
        try:
            values = reading.numbers(column)
        except cells.Misfit as misfit:
            if reading.type == "number" and cells.is_text(column):
                text = cells.written(column)
                misfit.hint = looks.meant(name, text, misfit.row, reading.notation, self._source.marks) or misfit.hint
            raise
        if reading.type.startswith("date") and isinstance(self._table, Marked):  # text is a day only here
            values = np.where(np.isin(np.floor(values), self._table.days), np.nan, values)
        return values

    def _coded(self, place: int, column: pa.Array) -> np.ndarray:
        found, codes = _encoded(column), self._codes[place]
        of = np.array([codes.setdefault(word, len(codes)) for word in found.dictionary.to_pylist()] + [np.nan])
        coded: np.ndarray = of[found.indices.fill_null(len(of) - 1).to_numpy(zero_copy_only=False)]
        return coded

    def _fields(self) -> tuple[TypedColumn, ...]:
        """The typed columns; words ascend, so that codes do not depend on the order of rows."""
        found, orders = list[TypedColumn](), dict[int, np.ndarray]()
        for place, name in enumerate(self.names):
            if self._types.readings[place].type != "category":
                found.append(TypedColumn(name))
                continue
            codes = self._codes[place]
            ascending = sorted(codes)
            orders[place] = np.full(len(codes) + 1, np.nan)  # the last for missing words
            orders[place][[codes[word] for word in ascending]] = np.arange(len(ascending))
            found.append(TypedColumn(name, tuple(ascending)))
        for begin in range(0, self.rows if orders else 0, BATCH):
            for place, order in orders.items():
                column = self._values[begin : begin + BATCH, place]
                column[:] = order[np.nan_to_num(column, nan=len(order) - 1).astype(np.int64)]
        return tuple(found)


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    """The column's words with a code each, null where one is missing. Raises Misfit."""
    if not pa.types.is_string(column.type):
        return cells.words(column).dictionary_encode()
    raw = column.dictionary_encode()  # a word is trimmed once, and not in every row
    try:
        words = cells.words(raw.dictionary).dictionary_encode()
    except cells.Misfit:
        return cells.words(column).dictionary_encode()  # which says in which row
    return pa.DictionaryArray.from_arrays(words.indices.take(raw.indices), words.dictionary)


def _mark(value: float, type: Type, kind: pa.DataType) -> str:
    """A column's value as `missing_values` names it: a number, as its cells of this kind have it, or a day."""
    if type.startswith("date"):
        return str(np.datetime64(int(value // 1), "D"))
    if type == "percent":
        value = float(f"{100 * value:.15g}")
    if pa.types.is_integer(kind) and value >= (most := int(np.iinfo(kind.to_pandas_dtype()).max)):
        return str(most)
    if abs(value) < 2**53 and value == int(value):
        return f"{value:.0f}"
    narrow = pa.types.is_float16(kind) or pa.types.is_float32(kind)
    return str(kind.to_pandas_dtype()(value) if narrow else value)


def _without_cells(column: pa.Array) -> bool:
    """True if a text column has only missing cells."""
    if not cells.is_text(column):
        return False
    parts = (column.slice(0, _FIRST), column.slice(_FIRST))  # few rows decide for most columns
    return all(cells.written(part).null_count == len(part) for part in parts)


def _together(wrong: Mapping[str, cells.Misfit], first: cells.Misfit) -> cells.Misfit:
    others = ", ".join(repr(name) for name in [*wrong][1:])
    hint = "; ".join(f"{name!r}: {misfit.remedy}" for name, misfit in wrong.items())
    otherwise = "words and codes are declared a `category` under `types`"
    return cells.Misfit(first.row, f"{first}; so it is with {others}", hint, otherwise)


@contextmanager
def located(table: Table, column: str, done: int) -> Iterator[None]:
    """Converts a Misfit, after `done` rows, to a DataError that locates the cell."""
    try:
        yield
    except cells.Misfit as misfit:
        place = table if isinstance(misfit, cells.OfNoKeys) else table.place(done + misfit.row)
        what = f"{place}, column {column!r}: {misfit}"
        raise DataError(what, hint=misfit.hint) from None


def _no_rows(table: Table) -> DataError:
    return DataError(f"{table} has columns but no rows", hint="write a line for every row below the header")


def refuse_twice(where: str, names: Sequence[str], hint: str = "rename one of them") -> None:
    """Raises DataError if two columns have one name; in one pass, since a table may have a hundred thousand columns."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: two columns are called {name!r}", hint=hint)
        seen.add(name)
