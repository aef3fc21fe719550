"""Table sources of a configuration: CSV, Parquet, Arrow, a database, numpy. docs/table_keys.md describes every key.

data:   {source: csv, path: clients.csv, key: client, drop: [name], missing: mean}
data:   {source: sql, url: 'sqlite:///clients.db', table: clients, key: client}
labels: {source: arrow, path: outcome.arrow, key: client, label: default}
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    PrivateAttr,
    model_validator,
)

from colonnade.common.config.data.columns import (
    CONTENTS,
    AllSplit,
    Decimal,
    Missing,
    Noise,
    ScaleConfig,
    SplitConfig,
    Thousands,
    Type,
    Unit,
    Unseen,
)
from colonnade.common.config.models import PretrainedConfig
from colonnade.common.section import Section


def _as_written(value: Any) -> Any:
    """A class name as labels spell it: YAML reads 1 as a number, and yes as a Boolean."""
    if isinstance(value, bool):
        raise ValueError("YAML reads this word as a truth value: put it in quotes")
    return str(value) if isinstance(value, int) else value


def _columns_of_key(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("expected the name of a column, or a list of names")
    if len(set(value)) < len(value):
        raise ValueError("a column is named twice")
    return value[0] if len(value) == 1 else tuple(value)


_KEY = "column that identifies a row, or a list of columns that do so together"

Key = str | tuple[str, ...] | None
"""Columns of a table that make its key: one, several that are joined, or none."""


def columns_of(key: Key) -> tuple[str, ...]:
    return (key,) if key and isinstance(key, str) else tuple(key or ())


def _mark(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        raise ValueError("YAML reads this word as a truth value or as nothing: put it in quotes")
    return str(value).strip() if isinstance(value, int | float | str) else value


class TableConfig(Section):
    """`key` names the key's columns."""

    key: Annotated[Key, BeforeValidator(_columns_of_key)] = Field(default=None, description=_KEY)
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
    def cached(self) -> bool:
        """True if a copy of the table is kept with the run. Formats with types are read almost as fast as a copy."""
        return False

    @property
    def place(self) -> str:
        """Name of the key that locates the rows."""
        return "path"

    def settings(self, *more: str) -> str:
        """The section, and more, on which the content read may depend."""
        return json.dumps([self.model_dump(mode="json"), *more], sort_keys=True)

    def opened(self, base: Path) -> Any:
        """The table with its header read, a `Table` of common/data/table.py. Defined by other packages' sources; raises
        DataError.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `opened`")


class Latest(Section):
    """The row of a repeated key that has the largest number or date in a column."""

    latest: str = Field(description="column of numbers or dates; it need not be a feature")


Repeated = Literal["refuse", "first", "last"] | Latest
RepeatedColumns = Literal["refuse", "first", "last", "mean"] | Latest
_REPEATED = "rows that repeat the key of another, where rows are aligned: refuse them, or use one row of each key: its "


class TableColumnsConfig(TableConfig):
    """A party's columns: those that `columns` lists, or all but the key and those that `drop` lists."""

    columns: tuple[str, ...] = Field(
        default=(), description="columns to take, by name; left out, all but key and `drop`"
    )
    drop: tuple[str, ...] = Field(default=(), description="columns to leave out, by name; either this or `columns`")
    types: Mapping[str, Type] = Field(
        default={},
        description="by column: number, category, date, 'date %d.%m.%Y', percent, boolean, text or image; left out, "
        "inferred",
    )
    units: Mapping[str, Unit] = Field(default={}, description="by column: unit before or after numbers in text")
    missing: Missing = Field(
        default="refuse", description="replacement of a missing value: none (refuse), or of the training rows"
    )
    unseen: Unseen = Field(
        default="refuse", description="a word that no training row has: refuse it, or zero (no category)"
    )
    repeated: RepeatedColumns = Field(
        default="refuse",
        description=f"{_REPEATED}first, its last, the one with the latest number or date in a column, as "
        "`{latest: updated}`, or the mean of its numbers",
    )
    split: SplitConfig = AllSplit()
    scale: ScaleConfig = Field(
        default="auto",
        description="scaling of the values before the model: none, unit, standard, {mean, std}, or auto, which is "
        "standard after an asinh of columns with a long tail",
    )
    noise: Noise = None
    store: Literal["memory", "disk"] = Field(
        default="memory",
        description="where the party's rows are while it trains: memory, or disk (a file in its folder of the run, of "
        "which a batch at a time is in memory: docs/scale.md)",
    )
    _tower: PretrainedConfig | None = PrivateAttr(default=None)

    @property
    def tower(self) -> PretrainedConfig | None:
        """The member's `model`, if it reads columns of text or images."""
        return self._tower

    def read_by(self, tower: PretrainedConfig) -> Self:
        """The same columns for a member whose model is this tower."""
        found = self.model_copy()
        found._tower = tower
        return found

    @property
    def contents(self) -> dict[str, Type]:
        """Columns of text or images, by name."""
        return {name: type for name, type in self.types.items() if type in CONTENTS}

    def column_of(self, value: str) -> str:
        """The table's column that a value of a row was made from, by the value's name."""
        name = value.rpartition("[")[0]
        return name if name in self.contents else value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.columns and self.drop:
            raise ValueError("`columns` and `drop` exclude each other: list what to take, or what to leave")
        seen = {*columns_of(self.key)}
        for name in self.columns:
            if name in seen:
                raise ValueError(f"{name!r} is listed under `columns` and is the key, or is listed twice")
            seen.add(name)
        if self.store == "disk" and self.repeated == "mean":
            raise ValueError("`repeated: mean` needs all rows at once: take another, or leave out `store: disk`")
        if self.store == "disk" and self.contents:
            raise ValueError("embeddings of images and texts are kept in memory: leave out `store: disk`")
        if self.store == "disk" and self.noise is not None:
            raise ValueError("`noise` is drawn for all rows at once: leave it out, or `store: disk`")
        for name in self.units:
            if self.types.get(name, "number") != "number":
                raise ValueError(f"{name!r} has a unit, and is no number under `types`")
        return self


class TableLabelsConfig(TableConfig):
    """One column of a table: class numbers 0 .. C-1, or names. In a regression, one or several columns of numbers."""

    label: str | tuple[str, ...] = Field(description="column of the labels; in regression, one or several columns")
    missing: Literal["refuse", "drop"] = Field(
        default="refuse", description="a row without a label: refuse the table, or drop the row"
    )
    repeated: Repeated = Field(
        default="refuse",
        description=f"{_REPEATED}first, its last, or the one with the latest number or date in a column, as "
        "`{latest: updated}`",
    )
    weight: str | None = Field(
        default=None,
        description="column of the rows' weights, 0 or more, in boosted models and regressions; left out, all rows "
        "count alike",
    )
    positive: Annotated[str | None, BeforeValidator(_as_written)] = Field(
        default=None,
        description="of two classes, the one that AUC, average precision, KS, gain and lift are of, last in all lists "
        "of classes; left out, the second in alphabetical order",
    )


def _tab(value: Any) -> Any:
    return "\t" if value in ("tab", "\\t") else value  # YAML reads '\t' in single quotes as two characters


def _check_encoding(value: str) -> str:
    try:
        "a".encode(value)  # base64 and others are codecs, of no text
        return codecs.lookup(value).name
    except (LookupError, UnicodeError):
        raise ValueError(f"{value!r} is no encoding: expected utf-8, cp1252, latin-1, utf-16 or another") from None


class CsvTable(TableConfig):
    """A CSV file with a header. `id` is another name for `key`."""

    source: Literal["csv"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")
    delimiter: Annotated[str, BeforeValidator(_tab), Field(min_length=1, max_length=1)] = Field(
        default=",", description="one character between cells; `tab` for a tab"
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] = Field(
        default="utf-8", description="text encoding, as Python names it"
    )
    key: Annotated[Key, BeforeValidator(_columns_of_key)] = Field(
        default=None, validation_alias=AliasChoices("key", "id"), description=f"{_KEY}; or `id`"
    )
    cache: bool = Field(default=True, description="keep a copy of the table, as it was read, in the run's folder")

    @property
    def cached(self) -> bool:
        return self.cache


class CsvData(CsvTable, TableColumnsConfig):
    """Columns of a CSV file."""


class CsvLabels(CsvTable, TableLabelsConfig):
    """Labels in a CSV file."""


class ParquetTable(TableConfig):
    """A Parquet file, or a folder of them."""

    source: Literal["parquet"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(
        description="a file, or a folder of files in the order of their names; relative to the configuration's folder, "
        "then to $COLONNADE_DATA; or an address that Arrow knows, as s3://BUCKET/FOLDER, gs:// or hdfs://"
    )


class ParquetData(ParquetTable, TableColumnsConfig):
    """Columns in Parquet."""


class ParquetLabels(ParquetTable, TableLabelsConfig):
    """Labels in Parquet. `name` is the data's name in reports."""

    name: str = Field(default="", description="name of the data in reports")


class ArrowFileTable(TableConfig):
    """An Arrow IPC (Feather) file, or a folder of them."""

    source: Literal["arrow"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(
        description="a file, or a folder of files in the order of their names; relative to the configuration's folder, "
        "then to $COLONNADE_DATA; or an address that Arrow knows, as s3://BUCKET/FOLDER, gs:// or hdfs://"
    )


class ArrowData(ArrowFileTable, TableColumnsConfig):
    """Columns in an Arrow file."""


class ArrowLabels(ArrowFileTable, TableLabelsConfig):
    """Labels in an Arrow file."""


class SqlTable(TableConfig):
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
        return "table" if self.query is None else "query"


class SqlData(SqlTable, TableColumnsConfig):
    """Columns of a database."""


class SqlLabels(SqlTable, TableLabelsConfig):
    """Labels in a database."""


class DuckDbTable(TableConfig):
    """The result of a query by DuckDB over files, `select * from 'clients/*.parquet'`, or a database of its own."""

    source: Literal["duckdb"] = Field(description="the source, which decides the other keys of this section")
    query: str = Field(description="a select statement; files in it are relative to the configuration's folder")
    path: str = Field(default="", description="a database of DuckDB, which is only read; empty: none")

    @property
    def place(self) -> str:
        return "query"


class DuckDbData(DuckDbTable, TableColumnsConfig):
    """Columns of a query by DuckDB."""


class DuckDbLabels(DuckDbTable, TableLabelsConfig):
    """Labels of a query by DuckDB."""


class NpyTable(TableConfig):
    """A numpy file."""

    source: Literal["npy"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")


class NpyData(NpyTable, TableColumnsConfig):
    """Columns of a numpy array."""


class NpyLabels(NpyTable, TableLabelsConfig):
    """Labels in a numpy array."""


TableData = CsvData | ParquetData | ArrowData | SqlData | DuckDbData | NpyData
TableLabels = CsvLabels | ParquetLabels | ArrowLabels | SqlLabels | DuckDbLabels | NpyLabels
