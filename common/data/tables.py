"""Table sources of a configuration: CSV, Parquet, Arrow, a database, numpy.

    data:   {source: csv, path: clients.csv, key: client, drop: [name], missing: mean}
    data:   {source: parquet, path: clients.parquet, key: client, columns: [age, town], types: {town: category}}
    data:   {source: sql, url: 'sqlite:///clients.db', table: clients, key: client}
    labels: {source: arrow, path: outcome.arrow, key: client, label: default}

docs/tables.md describes every key.
"""

from __future__ import annotations

import codecs
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import torch
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from torch import Tensor

from colonnade.common.data.columns.encode import Missing, Unseen
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import Decimal, Doubt, Thousands, Type, TypedColumn, Unit
from colonnade.common.data.columns.noise import DataNoiseConfig
from colonnade.common.data.columns.scale import ScaleConfig
from colonnade.common.data.keys import key_doubts, keys_of_rows
from colonnade.common.data.known_sets.places import find, find_file
from colonnade.common.data.labels import LabelColumn, classify_coded, hint_of_numbers, with_positive
from colonnade.common.data.split import AllSplit, PartyIndex, SplitConfig
from colonnade.common.data.table_cache import OnDisk, TableCache
from colonnade.common.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from colonnade.common.data.columns.notation import Notation
    from colonnade.common.data.table import Table

# Table readers are imported on use: pyarrow takes 0.2 s, and SQLAlchemy as much, in every process.


def _as_written(value: Any) -> Any:
    """A class as labels write it: YAML reads 1 as a number, and yes as a truth value."""
    if isinstance(value, bool):
        raise ValueError(
            f"YAML reads this word as a truth value: write it in quotes as the labels have it; Boolean columns have "
            f"'{str(value).lower()}'"
        )
    return str(value) if isinstance(value, int) else value


def _one_column(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) == 1:
        return value[0]
    if isinstance(value, list | tuple):
        raise ValueError(
            f"a key is one column, and {len(value)} are named: join them into one in every member's table, as in "
            f"`{'-'.join(map(str, value))}`, written alike by all"
        )
    return value


def _mark(value: Any) -> Any:
    """A mark of a missing value as the table writes it."""
    if isinstance(value, bool) or value is None:
        raise ValueError("YAML reads this word as a truth value or as nothing: put it in quotes")
    return str(value).strip() if isinstance(value, int | float | str) else value


class _Table(BaseModel):
    """`key` names the key column."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str | None, BeforeValidator(_one_column)] = Field(
        default=None, description="column of the keys that identify rows"
    )
    decimal: Decimal = Field(default=".", description="decimal separator of numbers in text")
    thousands: Thousands = Field(default="", description="thousands separator of numbers in text; empty: none")
    missing_values: tuple[Annotated[str, BeforeValidator(_mark)], ...] = Field(
        default=(),
        description="what stands for a missing value besides an empty cell, in every column: words with their case, as "
        "`[None, 'n/a']`, and numbers in any notation, as `[-999]`",
    )

    @model_validator(mode="after")
    def _two_marks(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError(f"`decimal` and `thousands` are both {self.decimal!r}")
        return self

    @property
    def notation(self) -> Notation:
        """Notation of numbers in text."""
        from colonnade.common.data.columns.notation import Notation  # noqa: PLC0415

        return Notation(self.decimal, self.thousands)

    @property
    def cached(self) -> bool:
        """True if a copy of the table is kept with the run. Formats with types are read almost as fast as a copy."""
        return False

    @property
    def place(self) -> str:
        """Name of the key that says where the rows are."""
        return "path"

    def settings(self, *more: str) -> str:
        """All of the section, and more, on which a read table may depend."""
        return json.dumps([self.model_dump(mode="json"), *more], sort_keys=True)

    def marked(self, base: Path) -> Table:
        """The table, null where `missing_values` stand. Raises DataError if there is none."""
        from colonnade.common.data.table import Marked  # noqa: PLC0415

        table = self.opened(base)
        return Marked(table, self.missing_values, self.notation) if self.missing_values else table

    @abstractmethod
    def opened(self, base: Path) -> Table:
        """The table, its header read. Raises DataError if there is none."""


class TableColumnsConfig(_Table):
    """A party's columns: those that `columns` lists, or all but the key and those that `drop` lists."""

    columns: tuple[str, ...] = Field(
        default=(), description="columns to take, by name; left out, all but key and `drop`"
    )
    drop: tuple[str, ...] = Field(default=(), description="columns to leave out, by name; either this or `columns`")
    types: Mapping[str, Type] = Field(
        default={},
        description="by column: number, category, date, 'date %d.%m.%Y', percent or boolean; left out, inferred",
    )
    units: Mapping[str, Unit] = Field(default={}, description="by column: unit before or after numbers in text")
    missing: Missing = Field(
        default="refuse", description="replacement of a missing value: none (refuse), or of the training rows"
    )
    unseen: Unseen = Field(
        default="refuse", description="a word that no training row has: refuse it, or zero (no category)"
    )
    split: SplitConfig = Field(default=AllSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="auto",
        description="scaling of the values before the model: none, unit, standard, {mean, std}, or auto, which is "
        "standard after an asinh of columns with a long tail",
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.columns and self.drop:
            raise ValueError("`columns` and `drop` exclude each other: list what to take, or what to leave")
        seen = {self.key}
        for name in self.columns:
            if name in seen:
                raise ValueError(f"{name!r} is listed under `columns` and is the key, or is listed twice")
            seen.add(name)
        for name in self.units:
            if self.types.get(name, "number") != "number":
                raise ValueError(f"{name!r} has a unit, and is no number under `types`")
        return self

    def features(
        self,
        member: PartyIndex,
        base: Path,
        cache: TableCache | None = None,
        trained: Sequence[TypedColumn] = (),
    ) -> Features:
        """Reads the columns of this party index, and the keys.

        Args:
            member: the party index.
            base: the folder that paths are relative to.
            cache: copies of the member's tables; None for none.
            trained: columns that a model was trained with, which are read by their names and types, whatever else the
                table has; none before there is a model.

        Raises:
            DataError: there is no such table or column, or its content is not usable.
            ConfigError: the split does not fit.
        """
        from colonnade.common.data.table import TableColumns  # noqa: PLC0415

        table, names = self._trained(base, trained) if trained else self._opened(base)
        chosen = names if trained else self.split.part((len(names),), names, member).pick(names)
        gaps = self.missing != "refuse"
        kinds = {column.name: column.kind for column in trained} | {
            name: type for name, type in self.types.items() if name in chosen
        }
        units = {name: unit for name, unit in self.units.items() if name in chosen}
        source = TableColumns(table, chosen, self.key, kinds, gaps, self.notation, units)
        if cache is None or not self.cached or not isinstance(table, OnDisk):
            found = source.features()
        else:
            found = cache.features(table, self.settings("columns", *chosen), source.features)
        left = self._not_trained(table, chosen) if trained else self._left_out(table)
        return replace(found, doubts=(*left, *found.doubts), place=table.place)

    def _trained(self, base: Path, trained: Sequence[TypedColumn]) -> tuple[Table, tuple[str, ...]]:
        """The table, and the columns of training. Raises DataError if one of them is missing."""
        from colonnade.common.data.table import require  # noqa: PLC0415

        table, names = self.marked(base), tuple(column.name for column in trained)
        require(table, [] if self.key is None else [self.key])
        known = set(table.header)
        if lacking := [name for name in names if name not in known]:
            others = [name for name in table.header if name not in names]
            shown = ", ".join(f"{name!r}{nearest(name, others)}" for name in lacking[:_NAMED])
            more = f" and {len(lacking) - _NAMED} others" if len(lacking) > _NAMED else ""
            raise DataError(
                f"{table} has no column {shown}{more}, which training had",
                hint="add it, or write it under the name of training; columns are found by their names, in any order",
                shared="its table lacks columns of training",
            )
        return table, names

    def _not_trained(self, table: Table, names: Sequence[str]) -> Iterator[Doubt]:
        """Columns that the model does not know."""
        known = {*names, self.key, *self.drop, *_index(table)}
        for name in () if self.columns else [name for name in table.header if name not in known][:_NAMED]:
            yield Doubt(name, "was no column of training, and is left out", f"say `drop: [{name}]` if it shall stay so")

    def names(self, member: PartyIndex, base: Path) -> tuple[str, ...]:
        """Names of the columns of this party index; no row is read. Raises like `features`."""
        _, names = self._opened(base)
        return self.split.part((len(names),), names, member).pick(names)

    def _opened(self, base: Path) -> tuple[Table, tuple[str, ...]]:
        """The table, and the columns that are features."""
        from colonnade.common.data.table import require, require_names  # noqa: PLC0415

        table = self.marked(base)
        named = (self.key, *self.columns, *self.drop, *self.types, *self.units)
        require(table, [name for name in named if name is not None])
        without = {self.key, *self.drop, *_index(table)}
        names = self.columns or tuple(name for name in table.header if name not in without)
        require_names(table, names)
        return table, names

    def _left_out(self, table: Table) -> Iterator[Doubt]:
        """Row indices of pandas that are no feature since nobody names them."""
        for name in _index(table):
            if not self.columns and name not in (self.key, *self.drop):
                what, hint = "is a row index of pandas, and is left out", "name it as the `key` or under `columns`"
                yield Doubt(name, what, f"if it is more than that, {hint}; else say `drop: [{name}]`")


class TableLabelsConfig(_Table):
    """One column of a table: class numbers 0 .. C-1, or names. In a regression, one or several columns of numbers."""

    label: str | tuple[str, ...] = Field(description="column of the labels; in regression, one or several columns")
    missing: Literal["refuse", "drop"] = Field(
        default="refuse", description="a row without a label: refuse the table, or drop the row"
    )
    positive: Annotated[str | None, BeforeValidator(_as_written)] = Field(
        default=None,
        description="of two classes, the one that AUC, average precision, KS, gain and lift are of, last in all lists "
        "of classes; left out, the second in alphabetical order",
    )

    def read(self, base: Path, cache: TableCache | None = None) -> LabelColumn:
        """The column. Raises DataError if there is no such table or column, or a label is wrong."""
        from colonnade.common.data.table import require  # noqa: PLC0415

        if not isinstance(self.label, str):
            raise ConfigError(
                f"server.labels.label names {len(self.label)} columns, and classes stand in one",
                hint="name one column, or set federation.task to regression",
            )
        table = self.marked(base)
        require(table, [self.label] if self.key is None else [self.label, self.key])
        found = self._cached(table, "classes", partial(self._classes, table, self.label), cache)
        return found if self.positive is None else with_positive(found, self.positive, "server.labels.positive")

    def read_numbers(self, base: Path, cache: TableCache | None = None) -> LabelColumn:
        """The columns as numbers, (n, targets). Raises DataError like `read`."""
        from colonnade.common.data.table import require  # noqa: PLC0415

        if self.positive is not None:
            raise ConfigError("server.labels.positive: numbers have no classes", hint="leave it out")
        names = (self.label,) if isinstance(self.label, str) else self.label
        table = self.marked(base)
        require(table, names if self.key is None else (*names, self.key))
        return self._cached(table, "numbers", partial(self._numbers, table, names), cache)

    def _cached(
        self, table: Table, role: str, read: Callable[[], LabelColumn], cache: TableCache | None
    ) -> LabelColumn:
        if cache is None or not self.cached or not isinstance(table, OnDisk):
            return read()
        return cache.labels(table, self.settings(role), read)

    def _classes(self, table: Table, label: str) -> LabelColumn:
        from colonnade.common.data.table import read_words  # noqa: PLC0415

        found, keys = read_words(table, label, self.key, gaps=self.missing == "drop")
        codes = torch.from_numpy(found.codes)
        known = codes >= 0
        _refuse_none(table, int(known.sum()))
        values, classes = classify_coded(codes[known], found.words, f"{table}, column {label!r}")
        doubtful = tuple(key_doubts(keys, self.key or "")) if keys is not None else ()
        if found.trimmed:
            what = f"has white space around the class in {found.trimmed} rows, which is left out"
            doubtful = (Doubt(label, what, "write the names in `federation.classes` without it"), *doubtful)
        return LabelColumn(values, classes, 0, _those(keys, known), len(codes) - len(values), doubtful)

    def _numbers(self, table: Table, names: tuple[str, ...]) -> LabelColumn:
        from colonnade.common.data.table import TableColumns  # noqa: PLC0415

        kinds: Mapping[str, Type] = dict.fromkeys(names, "number")
        try:
            gaps = self.missing == "drop"
            found = TableColumns(table, names, self.key, kinds, gaps, self.notation, instead="missing: drop").features()
        except DataError as wrong:
            raise DataError(str(wrong), hint=hint_of_numbers(wrong.hint)) from wrong
        known = ~found.values.isnan().any(dim=1)
        _refuse_none(table, int(known.sum()))
        values = found.values[known]
        return LabelColumn(values, (), 0, _those(found.ids, known), len(known) - len(values), found.doubts)


_NAMED = 10  # columns in a message


def _index(table: Table) -> tuple[str, ...]:
    from colonnade.common.data.table import HasIndex  # noqa: PLC0415

    return table.index if isinstance(table, HasIndex) else ()


def _refuse_none(table: Table, labelled: int) -> None:
    if not labelled:
        raise DataError(f"{table} has no row with a label", hint="look at the column that `label` names")


def _those(keys: Sequence[str] | None, known: Tensor) -> Sequence[str] | None:
    """The keys of the rows that have a label."""
    return keys if bool(known.all()) else keys_of_rows(keys, known.nonzero().squeeze(1))


def _tab(value: Any) -> Any:
    return "\t" if value in ("tab", "\\t") else value  # YAML reads '\t' in single quotes as two characters


def _check_encoding(value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError:
        raise ValueError(f"{value!r} is no encoding: expected utf-8, cp1252, latin-1, utf-16 or another") from None


class _Csv(_Table):
    """A CSV file with a header. `id` is another name for `key`."""

    source: Literal["csv"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")
    delimiter: Annotated[str, BeforeValidator(_tab), Field(min_length=1, max_length=1)] = Field(
        default=",", description="one character between cells; `tab` for a tab"
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] = Field(
        default="utf-8", description="text encoding, as Python names it"
    )
    key: Annotated[str | None, BeforeValidator(_one_column)] = Field(
        default=None,
        validation_alias=AliasChoices("key", "id"),
        description="column of the keys that identify rows; or `id`",
    )
    cache: bool = Field(default=True, description="keep a copy of the table, as it was read, in the run's folder")

    @property
    def cached(self) -> bool:
        """True if a copy of the table is kept with the run."""
        return self.cache

    def opened(self, base: Path) -> Table:
        """Reads the header. Raises DataError."""
        from colonnade.common.data.formats.csv_file import CsvFile  # noqa: PLC0415

        return CsvFile.open(find_file(self.path, base), self.delimiter, self.encoding)


class CsvData(_Csv, TableColumnsConfig):
    """Columns of a CSV file."""


class CsvLabels(_Csv, TableLabelsConfig):
    """Labels in a CSV file."""


class _Parquet(_Table):
    """A Parquet file, or a folder of them."""

    source: Literal["parquet"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(
        description="a file, or a folder of files in the order of their names; relative to the configuration's folder, "
        "then to $COLONNADE_DATA"
    )

    def opened(self, base: Path) -> Table:
        """Reads the schema. Raises DataError."""
        from colonnade.common.data.formats.arrow_files import ArrowFiles  # noqa: PLC0415

        return ArrowFiles(find(self.path, base, Path.exists, "Parquet file"), "parquet")


class ParquetData(_Parquet, TableColumnsConfig):
    """Columns in Parquet."""


class ParquetLabels(_Parquet, TableLabelsConfig):
    """Labels in Parquet. `name` is the data's name in reports."""

    name: str = Field(default="", description="name of the data in reports")


class _Arrow(_Table):
    """An Arrow IPC (Feather) file, or a folder of them."""

    source: Literal["arrow"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(
        description="a file, or a folder of files in the order of their names; relative to the configuration's folder, "
        "then to $COLONNADE_DATA"
    )

    def opened(self, base: Path) -> Table:
        """Reads the schema. Raises DataError."""
        from colonnade.common.data.formats.arrow_files import ArrowFiles  # noqa: PLC0415

        return ArrowFiles(find(self.path, base, Path.exists, "Arrow file"), "arrow")


class ArrowData(_Arrow, TableColumnsConfig):
    """Columns in an Arrow file."""


class ArrowLabels(_Arrow, TableLabelsConfig):
    """Labels in an Arrow file."""


class _Sql(_Table):
    """A `table` of a database, or the result of a `query`."""

    source: Literal["sql"] = Field(description="the source, which decides the other keys of this section")
    url: str = Field(description="address of the database, as SQLAlchemy writes it; without a password")
    table: str | None = Field(default=None, description="a table of the database; either this or `query`")
    query: str | None = Field(default=None, description="a select statement; either this or `table`")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError("say either `table` or `query`")
        return self

    @property
    def place(self) -> str:
        """Name of the key that says where the rows are."""
        return "table" if self.query is None else "query"

    def opened(self, base: Path) -> Table:
        """Queries the columns' names. Raises DataError, or EnvironmentFault without SQLAlchemy or a driver."""
        from colonnade.common.data.formats.database import Database, DatabaseQuery, DatabaseTable  # noqa: PLC0415

        database = Database(self.url, base)
        if self.query is not None:
            return DatabaseQuery(database, self.query)
        return DatabaseTable(database, self.table or "", self.key)


class SqlData(_Sql, TableColumnsConfig):
    """Columns of a database."""


class SqlLabels(_Sql, TableLabelsConfig):
    """Labels in a database."""


class _Npy(_Table):
    """A numpy file."""

    source: Literal["npy"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")

    def opened(self, base: Path) -> Table:
        """Maps the file. Raises DataError."""
        from colonnade.common.data.formats.arrays import ArrayFile  # noqa: PLC0415

        return ArrayFile(find_file(self.path, base))


class NpyData(_Npy, TableColumnsConfig):
    """Columns of a numpy array."""


class NpyLabels(_Npy, TableLabelsConfig):
    """Labels in a numpy array."""


TableData = CsvData | ParquetData | ArrowData | SqlData | NpyData
TableLabels = CsvLabels | ParquetLabels | ArrowLabels | SqlLabels | NpyLabels
