"""Reads table sources. Readers of formats are imported on use: SQLAlchemy and Arrow's data sets take a tenth of a
second each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from colonnade.common.config.data import tables as sections
from colonnade.common.config.data.columns import PartyIndex, Type
from colonnade.common.data.columns import looks
from colonnade.common.data.columns.cells import Notation, dates
from colonnade.common.data.columns.features import Doubt, Features, TypedColumn
from colonnade.common.data.formats.arrays import ArrayFile
from colonnade.common.data.formats.csv_file import CsvFile
from colonnade.common.data.key_checks import short_words
from colonnade.common.data.keys import KeyColumn, keys_of_rows
from colonnade.common.data.known_sets.catalogue import find, find_file
from colonnade.common.data.labels import LabelColumn, classify_coded, doubt_of_numbers, hint_of_numbers, with_positive
from colonnade.common.data.pretrained.contents import with_contents
from colonnade.common.data.repeated import OneRowAKey
from colonnade.common.data.split import part_of
from colonnade.common.data.table import (
    Beside,
    Described,
    Doubted,
    Marked,
    Table,
    TableColumns,
    Words,
    read_words,
    require,
    require_names,
)
from colonnade.common.data.table_cache import OnDisk, TableCache
from colonnade.common.errors import ConfigError, DataError, nearest
from colonnade.common.moved import moved
from colonnade.common.run.device import release_free_memory

_Columns = sections.TableColumnsConfig | sections.TableLabelsConfig
_NAMED = 10  # columns in a message


def open_table(config: sections.TableConfig, base: Path) -> Table:
    """The table with its header read; cells equal to `missing_values` are null.

    Raises DataError, or EnvironmentFault without a driver.
    """
    table = _opened(config, base)
    if not config.missing_values:
        return table
    columns = config if isinstance(config, sections.TableColumnsConfig) else None
    units = {} if columns is None else {name: "%" for name, type in columns.types.items() if type == "percent"}
    units |= {} if columns is None else columns.units
    return Marked(table, config.missing_values, _notation(config), units)


def _opened(config: sections.TableConfig, base: Path) -> Table:
    match config:
        case sections.CsvTable():
            return CsvFile.open(find_file(config.path, base), config.delimiter, config.encoding)
        case sections.ParquetTable() | sections.ArrowFileTable():
            from colonnade.common.data.formats.arrow_table import ArrowFiles  # noqa: PLC0415

            word = {"parquet": "Parquet", "arrow": "Arrow"}[config.source]
            far = "://" in config.path
            return ArrowFiles(
                config.path if far else find(config.path, base, Path.exists, f"{word} file"), config.source
            )
        case sections.SqlTable() | sections.DuckDbTable():
            return _queried(config, base)
        case sections.NpyTable():
            return ArrayFile(find_file(config.path, base))
        case _:
            table: Table = config.opened(base)
            return table


def _queried(config: sections.SqlTable | sections.DuckDbTable, base: Path) -> Table:
    if isinstance(config, sections.DuckDbTable):
        from colonnade.common.data.formats.duckdb_query import DuckDbQuery  # noqa: PLC0415

        return DuckDbQuery(config.query, find_file(config.path, base, "database") if config.path else None, base)
    from colonnade.common.data.formats.database import Database, DatabaseQuery, DatabaseTable  # noqa: PLC0415

    database = Database(config.url, base)
    if config.query is not None:
        return DatabaseQuery(database, config.query)
    return DatabaseTable(database, config.table or "", sections.columns_of(config.key))


def _notation(config: sections.TableConfig) -> Notation:
    return Notation(config.decimal, config.thousands)


def read_features(
    config: sections.TableColumnsConfig,
    member: PartyIndex,
    base: Path,
    cache: TableCache | None = None,
    trained: Sequence[TypedColumn] = (),
) -> Features:
    """Reads the columns of this party index, and the keys.

    Args:
        cache: copies of the member's tables; None for none.
        trained: the model's columns, read by name and type whatever else the table has; empty before training.

    Raises:
        DataError: there is no such table or column, or its content is not usable.
        ConfigError: the split does not fit.
    """
    table, names = _trained(config, base, trained) if trained else _opened_columns(config, base)
    every = names if trained else part_of(config.split, (len(names),), names, member).pick(names)
    unread = set(config.contents)
    chosen = tuple(name for name in every if name not in unread)
    own = set(chosen)  # a table may have a hundred thousand columns
    gaps = config.missing != "refuse"
    kinds = {column.name: column.kind for column in trained} | {
        name: type for name, type in config.types.items() if name in own
    }
    units = {name: unit for name, unit in config.units.items() if name in own}
    repeats = config.repeated != "refuse"
    disk = None if config.store == "memory" else Path(gettempdir()) if cache is None else cache.folder()
    contents = [name for name in every if name not in own]
    beside = _beside(config, table, *(contents if chosen else contents[1:]))
    source = TableColumns(
        table, chosen, config.key, kinds, gaps, _notation(config), units, repeats=repeats, disk=disk, beside=beside
    )
    if not chosen:
        found = None
    elif disk is not None or cache is None or not config.cached or not isinstance(table, OnDisk):
        found = source.features()
        if disk is not None:
            release_free_memory()  # of Arrow's batches and ours
    else:
        found = cache.features(table, config.settings("columns", *chosen), source.features)
    if contents or found is None:
        found = _with_contents(config, table, contents, found, base, beside)
    left = _not_trained(config, table, every) if trained else _left_out(config, table)
    found = replace(found, doubts=(*_of_opening(table), *left, *found.doubts), place=table.place)
    return _one_row_a_key(config, beside, config.types).features(found) if repeats else found


def _beside(config: _Columns, table: Table, *names: str) -> Beside:
    """Columns to be read in the pass that reads the rows: these, and the one that decides which row of a key is used.

    Raises DataError: the table lacks one.
    """
    latest = [config.repeated.latest] if isinstance(config.repeated, sections.Latest) else []
    require(table, latest)
    return Beside(table, [*latest, *names])


def _one_row_a_key(config: _Columns, table: Beside, types: Mapping[str, Type]) -> OneRowAKey:
    latest = config.repeated.latest if isinstance(config.repeated, sections.Latest) else ""
    key = ", ".join(sections.columns_of(config.key))
    return OneRowAKey(config.repeated, table, key, _notation(config), types.get(latest))


def _with_contents(
    config: sections.TableColumnsConfig,
    table: Table,
    names: Sequence[str],
    others: Features | None,
    base: Path,
    beside: Beside,
) -> Features:
    """The columns with those of texts or images, given their names."""
    files = of.files if isinstance(of := _opened(config, base), OnDisk) else ()
    if not files and "image" in config.contents.values():
        raise DataError(
            f"{table}: its images are files, and paths are relative to a table's own folder, which it has not",
            hint="write the table as a CSV or Parquet file, beside the images",
        )
    return with_contents(config, table, names, others, files[0].parent if files else base, base, beside=beside)


def _trained(
    config: sections.TableColumnsConfig, base: Path, trained: Sequence[TypedColumn]
) -> tuple[Table, tuple[str, ...]]:
    """The table, and the columns of training. Raises DataError if one of them is missing."""
    table, names = open_table(config, base), tuple(dict.fromkeys(config.column_of(column.name) for column in trained))
    require(table, sections.columns_of(config.key))
    taken = {*(config.columns or names)} - {*config.drop}
    if other := next((name for name in names if name not in taken), None):
        raise ConfigError(
            f"{table}: `columns` or `drop` leaves {other!r} out, a column of training",
            hint="name the columns that the run began with, or begin a new run",
        )
    known = set(table.header)
    if lacking := [name for name in names if name not in known]:
        trained_names = set(names)
        others = [name for name in table.header if name not in trained_names]
        shown = ", ".join(f"{name!r}{nearest(name, others)}" for name in lacking[:_NAMED])
        more = f" and {len(lacking) - _NAMED} others" if len(lacking) > _NAMED else ""
        raise DataError(
            f"{table} has no column {shown}{more}, which training had",
            hint="add it, or write it under the name of training; columns are found by their names, in any order",
            shared="its table lacks columns of training",
        )
    return table, names


def _not_trained(config: sections.TableColumnsConfig, table: Table, names: Sequence[str]) -> Iterator[Doubt]:
    known = {*names, *sections.columns_of(config.key), *config.drop, *_index(table)}
    for name in () if config.columns else [name for name in table.header if name not in known][:_NAMED]:
        yield Doubt(name, "was no column of training, and is left out", f"say `drop: [{name}]` if it shall stay so")


def read_names(config: sections.TableColumnsConfig, member: PartyIndex, base: Path) -> tuple[str, ...]:
    """Names of the columns of this party index; no row is read. Raises like `read_features`."""
    _, names = _opened_columns(config, base)
    return part_of(config.split, (len(names),), names, member).pick(names)


def first_and_last(config: sections.TableConfig, base: Path, column: str, form: str) -> tuple[str, ...]:
    """The first and the last date in a column, as ISO 8601; empty if it has none.

    Args:
        form: as of `dates`.
    """
    ends = []
    for batch in open_table(config, base).batches([column]):
        cells = batch.column(0)
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            instants = dates(pc.utf8_trim_whitespace(cells), form)
        else:
            instants = pc.cast(cells, pa.timestamp("us"), safe=False)
        ends += [end.date().isoformat() for end in pc.min_max(instants).as_py().values() if end is not None]
    return (min(ends), max(ends)) if ends else ()


def _opened_columns(config: sections.TableColumnsConfig, base: Path) -> tuple[Table, tuple[str, ...]]:
    table = open_table(config, base)
    key = sections.columns_of(config.key)
    require(table, [*key, *config.columns, *config.drop, *config.types, *config.units])
    without = {*key, *config.drop, *_index(table)}
    names = config.columns or tuple(name for name in table.header if name not in without)
    require_names(table, names)
    return table, names


def _left_out(config: sections.TableColumnsConfig, table: Table) -> Iterator[Doubt]:
    """Warnings about pandas row indices that no key names: they are no features."""
    for name in _index(table):
        if not config.columns and name not in (*sections.columns_of(config.key), *config.drop):
            what, hint = "is a row index of pandas, and is left out", "name it as the `key` or under `columns`"
            yield Doubt(name, what, f"if it is more than that, {hint}; else say `drop: [{name}]`")


def read_classes(config: sections.TableLabelsConfig, base: Path, cache: TableCache | None = None) -> LabelColumn:
    if not isinstance(config.label, str):
        raise ConfigError(
            f"server.labels.label names {len(config.label)} columns, and classes stand in one",
            hint="name one column, or set federation.task to regression",
        )
    table = open_table(config, base)
    require(table, _named(config, config.label))
    found = _cached(config, table, "classes", partial(_classes, config, table, config.label), cache)
    return found if config.positive is None else with_positive(found, config.positive, "server.labels.positive")


def read_numbers(config: sections.TableLabelsConfig, base: Path, cache: TableCache | None = None) -> LabelColumn:
    """The columns as numbers, (n, targets)."""
    if config.positive is not None:
        raise ConfigError("server.labels.positive: numbers have no classes", hint="leave it out")
    names = (config.label,) if isinstance(config.label, str) else config.label
    table = open_table(config, base)
    require(table, _named(config, *names))
    return _cached(config, table, "numbers", partial(_numbers, config, table, names), cache)


def _cached(
    config: sections.TableLabelsConfig,
    table: Table,
    role: str,
    read: Callable[[], LabelColumn],
    cache: TableCache | None,
) -> LabelColumn:
    if cache is None or not config.cached or not isinstance(table, OnDisk):
        found = read()
    else:
        found = cache.labels(table, config.settings(role), read)
    release_free_memory()
    return found if found.dropped or found.repeated else replace(found, place=table.place)


def _named(config: sections.TableLabelsConfig, *labels: str) -> list[str]:
    return [*labels, *sections.columns_of(config.key), *_weight(config)]


def _weight(config: sections.TableLabelsConfig) -> tuple[str, ...]:
    return () if config.weight is None else (config.weight,)


def _weights(config: sections.TableLabelsConfig, table: Beside, known: Tensor, rows: Tensor | None) -> Tensor | None:
    """Weights of these rows, or of all. Raises DataError if one is missing or negative and has a label, or all are
    zero.
    """
    if (name := config.weight) is None:
        return None
    read = TableColumns(table, (name,), None, {name: "number"}, gaps=True, notation=_notation(config)).features()
    found = read.values[:, 0]
    if bool((wrong := known & ~(found >= 0)).any()):
        row = int(wrong.nonzero()[0])
        said = "is missing" if found[row].isnan() else f"of {found[row].item():g} is not 0 or more"
        hint = "weights are numbers from 0; a row that shall not count has 0"
        raise DataError(f"{table.place(row)}, column {name!r}: a weight {said}", hint=hint)
    if not bool((weights := _of(found, rows)).any()):
        raise DataError(f"{table}, column {name!r}: all weights are 0", hint="leave server.labels.weight out")
    return weights


def _classes(config: sections.TableLabelsConfig, table: Table, label: str) -> LabelColumn:
    repeats = config.repeated != "refuse"
    beside = _beside(config, table, *_weight(config))
    found, keys = read_words(table, label, config.key, gaps=config.missing == "drop", repeats=repeats, beside=beside)
    codes = torch.from_numpy(found.codes)
    known = codes >= 0
    _refuse_none(table, int(known.count_nonzero()))
    rows, doubtful = _labelled(config, beside, keys, known)
    values, classes = classify_coded(_of(codes, rows), found.words, f"{table}, column {label!r}")
    doubtful = (*_of_opening(table), *_of_classes(config, table, label, found), *found.doubts, *doubtful)
    labels = LabelColumn(values, classes, 0, _those(keys, rows), weights=_weights(config, beside, known, rows))
    return _counted(labels, known, doubtful)


def _of_classes(config: sections.TableLabelsConfig, table: Table, label: str, found: Words) -> Iterator[Doubt]:
    if found.trimmed:
        what = f"has white space around the class in {found.trimmed} rows, which is left out"
        yield Doubt(label, what, "write the names in `federation.classes` without it")
    yield from looks.alike(label, found.words, found.codes, table.place, classes=True)
    yield from short_words(label, found.words, found.codes, table.place)
    if places := looks.marks_of_missing(found.words):
        rows, marks = np.isin(found.codes, places), [found.words[place] for place in places]
        first = table.place(int(rows.argmax()))
        what = f"has the class {', '.join(map(repr, marks))} in {rows.sum()} rows (first in {first})"
        said = looks.missing(marks, config.missing_values, more="missing: drop")
        yield Doubt(label, what, f"if it stands for a missing label, say {said} of the labels")


def _numbers(config: sections.TableLabelsConfig, table: Table, names: tuple[str, ...]) -> LabelColumn:
    kinds: Mapping[str, Type] = dict.fromkeys(names, "number")
    beside = _beside(config, table, *_weight(config))
    try:
        gaps = config.missing == "drop"
        source = TableColumns(
            table, names, config.key, kinds, gaps, _notation(config), instead="missing: drop",
            repeats=config.repeated != "refuse", doubted=True, beside=beside,
        )  # fmt: skip
        found = source.features()
    except DataError as wrong:
        raise DataError(str(wrong), hint=hint_of_numbers(wrong.hint)) from wrong
    known = ~found.values.isnan().any(dim=1)
    _refuse_none(table, int(known.count_nonzero()))
    rows, doubtful = _labelled(config, beside, found.ids, known)
    weights = _weights(config, beside, known, rows)
    labels = LabelColumn(_of(found.values, rows), (), 0, _those(found.ids, rows), weights=weights)
    doubts = (doubt_of_numbers(doubt) if doubt.column in names else doubt for doubt in found.doubts)
    return _counted(labels, known, (*_of_opening(table), *doubts, *doubtful))


def _counted(labels: LabelColumn, known: Tensor, doubts: tuple[Doubt, ...]) -> LabelColumn:
    """The labels with the number of rows left out."""
    labelled = int(known.count_nonzero())
    return replace(labels, dropped=len(known) - labelled, repeated=labelled - len(labels.values), doubts=doubts)


def _labelled(
    config: sections.TableLabelsConfig, table: Beside, keys: Sequence[str] | None, known: Tensor
) -> tuple[Tensor | None, tuple[Doubt, ...]]:
    """Numbers of the rows with a label, one per key if so configured, and warnings about the others.

    None if that is every row.
    """
    if config.repeated == "refuse":
        return None if bool(known.all()) else known.nonzero().squeeze(1), ()
    assert isinstance(keys, KeyColumn)  # the configuration was checked
    return _one_row_a_key(config, table, {}).rows(keys, known)


def _of_opening(table: Table) -> tuple[Doubt, ...]:
    return table.doubts if isinstance(table, Doubted) else ()


def _index(table: Table) -> tuple[str, ...]:
    return table.index if isinstance(table, Described) else ()


def _refuse_none(table: Table, labelled: int) -> None:
    if not labelled:
        raise DataError(f"{table} has no row with a label", hint="look at the column that `label` names")


def _of(values: Tensor, rows: Tensor | None) -> Tensor:
    return values if rows is None else values[rows]


def _those(keys: Sequence[str] | None, rows: Tensor | None) -> Sequence[str] | None:
    return keys if rows is None else keys_of_rows(keys, rows)


_MOVED = (
    "TableColumnsConfig",
    "TableLabelsConfig",
)
__getattr__ = moved(__name__, dict.fromkeys(_MOVED, "colonnade.common.config.data.tables"))
