"""An Arrow table in memory, or anything that exports one as a stream: pandas, Polars, DuckDB, PyArrow.

A pandas row index among its columns is no feature: it gives a row's position, and perhaps its outcome.

A table on the disk is in Parquet or Arrow IPC (Feather): a file, or a folder of files whose order is that of their
names; on this machine, or on a file system that Arrow knows (s3://, gs://, hdfs://). All files of a folder must agree
on the columns that are read. Names of its folders such as `branch=A` (Hive, Spark) are columns of text; files that have
the column themselves must have the same values in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from colonnade.common.data.columns import cells
from colonnade.common.data.columns.features import Doubt
from colonnade.common.data.known_sets.catalogue import refuse_unusable
from colonnade.common.data.table import BATCH, refuse_twice
from colonnade.common.errors import DataError, nearest

if TYPE_CHECKING:
    from colonnade.common.data.columns.features import Features


class ArrowTable:
    """A table in memory, for sources of other packages; `index`, `unwritten` and `categories` as in `Described`.

    Args:
        content: has `__arrow_c_stream__`.
    """

    def __init__(self, content: Any, name: str) -> None:
        try:
            self._table = pa.table(content)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"{name} is no table: {error}", hint="give a table, as Arrow can read it") from error
        self._name, self.header = name, tuple(self._table.column_names)
        refuse_twice(name, self.header)
        self.index, self.unwritten = index_columns(self._table.schema), unwritten_index(self._table.schema)
        self.categories = categories(self._table.schema)

    def __str__(self) -> str:
        return self._name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        found = self._table.select(list(columns))
        refuse_extensions(self._name, found.schema)
        yield from found.to_batches(max_chunksize=BATCH)

    def place(self, row: int) -> str:
        return f"{self._name}, row {row + 1}"


def of_features(features: Features) -> pa.Table:
    """Typed columns as they were read: numbers, and words as text; null where a value is missing."""
    columns = {}
    for field, cells_of in zip(features.fields, features.values.numpy().T, strict=True):
        absent = np.isnan(cells_of)
        columns[field.name] = pa.array(cells_of, mask=absent)
        if field.words is not None:
            codes = pa.array(np.where(absent, 0, cells_of).astype(np.int32), mask=absent)
            words = pa.DictionaryArray.from_arrays(codes, pa.array(field.words, pa.string()))
            columns[field.name] = words.cast(pa.string())
    return pa.table(columns)


def read_arrow(content: Any, name: str) -> pa.Table:
    """Anything that has `__arrow_c_stream__`. Raises DataError, which names the first column at fault."""
    try:
        table = pa.table(content)
        for place, one in enumerate(table.schema):
            if pa.types.is_dictionary(one.type) and isinstance(one.type.value_type, pa.BaseExtensionType):
                chunks = [cells.decoded(chunk) for chunk in table[place].chunks]  # files of intervals cannot be read
                table = table.set_column(place, one.name, pa.chunked_array(chunks, cells.plain_type(one.type)))
        return table
    except Exception as failed:  # the library's own, of any type
        said = " ".join(" ".join(str(part) for part in failed.args).split()) or type(failed).__name__
        raise DataError(
            f"{name}{_at_fault(content)} cannot be read: {said}",
            hint="give every column values of one type that Arrow has (whole numbers of 64 bits, floats, words), "
            "and a name of its own, also beside the index",
        ) from failed


def _at_fault(content: Any) -> str:
    for column in getattr(content, "columns", ()):
        try:
            found = content[column]
            pa.chunked_array(found) if hasattr(found, "__arrow_c_stream__") else pa.array(found)
        except Exception:  # noqa: BLE001  # likewise
            return f", column {column!r},"
    return ""


def write_arrow(table: pa.Table, file: IO[bytes]) -> None:
    with pa.ipc.new_file(pa.PythonFile(file, "wb"), table.schema) as opened:
        opened.write_table(table.unify_dictionaries(), max_chunksize=BATCH)  # the file has one for each column


_UNNAMED = re.compile(r"__index_level_\d+__")  # an index without a name, also in a file that has lost the metadata

_KEY = b"pandas"


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that are a row index, by their names and by the metadata that pandas writes."""
    stored = {found for found in _entries(schema, "index_columns") if isinstance(found, str)}
    return tuple(name for name in schema.names if name in stored or _UNNAMED.fullmatch(name))


def unwritten_index(schema: pa.Schema) -> tuple[str, ...]:
    """Names of an index that counts rows: pandas stores its range and no column."""
    said = (found.get("name") for found in _entries(schema, "index_columns") if isinstance(found, dict))
    return tuple(name for name in said if isinstance(name, str))


def categories(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that are categories by Arrow's type, or of pandas' dtype in Parquet, which has no such numbers."""
    stored = {found.get("field_name") for found in _categorical(schema)}
    return tuple(one.name for one in schema if one.name in stored or pa.types.is_dictionary(one.type))


def with_index(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with these columns as its row index, and without other metadata than that of categories."""
    said = {"index_columns": list(names), "columns": _categorical(table.schema)}
    return table.replace_schema_metadata({_KEY: json.dumps(said).encode()} if any(said.values()) else None)


def _categorical(schema: pa.Schema) -> list[dict[str, Any]]:
    found = (each for each in _entries(schema, "columns") if isinstance(each, dict))
    return [each for each in found if each.get("pandas_type") == "categorical"]


def _entries(schema: pa.Schema, key: str) -> list[Any]:
    try:
        found = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    except ValueError:
        return []
    entries = found.get(key) if isinstance(found, dict) else None
    return entries if isinstance(entries, list) else []


_EXTENSION, _READABLE = b"ARROW:extension:name", ("arrow.uuid", "arrow.bool8")
_INSTEAD = {
    "pandas.period": "write days in its place, as `frame['{0}'].dt.to_timestamp()`, and declare them a `date`",
    "arrow.json": "write its text in its place, as DuckDB's `{0} ->> '$'` gives it",
}


def refuse_extensions(where: str, fields: Iterable[pa.Field]) -> None:
    """Refuses columns whose stored numbers or texts are no values of their own: periods, JSON, what others define."""
    for field in fields:
        is_one = isinstance(field.type, pa.BaseExtensionType)
        name = field.type.extension_name if is_one else (field.metadata or {}).get(_EXTENSION, b"").decode()
        if name and name not in _READABLE:
            hint = _INSTEAD.get(name, "convert it to numbers, words or dates").format(field.name)
            raise DataError(
                f"{where}: the column {field.name!r} is of the extension type {name}, which is not read",
                hint=f"{hint}; or leave it out with `drop`",
            )


Format = Literal["parquet", "arrow"]
_SUFFIXES = {"parquet": (".parquet", ".parq", ".pq"), "arrow": (".arrow", ".feather", ".ft", ".ipc")}
_FORMATS = {
    "parquet": pa_dataset.ParquetFileFormat(
        default_fragment_scan_options=pa_dataset.ParquetFragmentScanOptions(arrow_extensions_enabled=True)
    ),
    "arrow": "arrow",
}
_BUFFER = 1 << 18  # bytes that are read of a column at a time
_NOTHING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _Part:
    """One of the files, its path relative to the folder.

    `folders` are columns that its folders' names give, with their values; None where one is missing.
    """

    name: str
    fragment: Any
    schema: pa.Schema
    folders: Mapping[str, str | None]

    @cached_property
    def own(self) -> Mapping[str, pa.Field]:
        """Its own columns, since a schema finds none by its name in less than the time of all."""
        return {field.name: field for field in self.schema}

    def kind(self, column: str) -> pa.DataType | None:
        """Type of a column as it is read; None if the file has none."""
        if column in self.own:
            return cells.plain_type(self.own[column].type)
        return pa.string() if column in self.folders else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.own, *self.folders)))


class ArrowFiles:
    """Files as a table: batches are read on demand, and only the requested columns.

    `index`, `unwritten` and `categories` as in `Described`, `doubts` as in `Doubted`. Raises DataError if a path holds
    nothing of the format, or two columns have the same name.
    """

    def __init__(self, path: Path | str, kind: Format) -> None:
        self._kind = kind
        if isinstance(path, Path) and path.is_file():
            refuse_unusable(path)
        self._address = str(path)
        self._name = self._address if isinstance(path, Path) else _without_secrets(path)
        try:
            files, root = (None, self._address) if isinstance(path, Path) else pa_fs.FileSystem.from_uri(path)
            self._root = str(root)
            dataset = pa_dataset.dataset(root, format=_FORMATS[kind], filesystem=files)
            self._files = [self._file(fragment) for fragment in dataset.get_fragments()]
            left = _left_out(files or pa_fs.LocalFileSystem(), self._root, kind)
        except (pa.ArrowException, OSError) as error:
            raise self._broken(error) from error
        if not self._files:
            others = f" but {left[0]}, whose name begins with {PurePath(left[0]).name[0]}" if left else ""
            raise DataError(
                f"{path} is a folder without files{others}", hint="name the folder or the file that holds the table"
            )
        self.doubts = tuple(map(_left_file, left))
        for file in self._files:
            refuse_twice(self._where(file), file.schema.names)
        self.header = tuple(dict.fromkeys(name for file in self._files for name in file.names))
        self.index = tuple(dict.fromkeys(name for file in self._files for name in index_columns(file.schema)))
        self.unwritten = tuple(dict.fromkeys(name for file in self._files for name in unwritten_index(file.schema)))
        self.categories = tuple({name for file in self._files for name in categories(file.schema)})

    def __str__(self) -> str:
        return self._name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns of all rows. Raises DataError if a file is broken, or files differ in these columns."""
        for file in self._files:
            found = (file.own[name] for name in columns if name in file.own)
            refuse_extensions(self._where(file), found)
        schema = pa.schema([(name, self._type(name)) for name in columns])
        for file in self._files:
            own = [name for name in dict.fromkeys(columns) if name in file.own]
            try:
                for batch in self._read(file, own):
                    self._refuse_other_folders(file, batch)
                    made = [self._column(file, field, batch) for field in schema]
                    yield pa.RecordBatch.from_arrays(made, schema=schema)
            except (pa.ArrowInvalid, OSError) as error:
                raise self._broken(error) from error

    def _read(self, file: _Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of a file. One thread without read-ahead, Parquet page by page: memory holds neither the table
        nor a row group.
        """
        if self._kind == "parquet" and columns:
            with file.fragment.open() as opened, _parquet(opened) as found:
                yield from found.iter_batches(BATCH, columns=list(columns), use_threads=False)
            return
        yield from file.fragment.to_batches(
            columns=columns, batch_size=BATCH, batch_readahead=1, fragment_readahead=1, use_threads=False
        )

    def place(self, row: int) -> str:
        """`FILE, row 7`, counted from 1 in its file."""
        for file in self._files[:-1]:
            if row < (rows := file.fragment.count_rows()):
                return f"{self._where(file)}, row {row + 1}"
            row -= rows
        return f"{self._where(self._files[-1])}, row {row + 1}"

    def _file(self, fragment: Any) -> _Part:
        below = PurePath(fragment.path).relative_to(self._root)
        said = (part.partition("=") for part in below.parts[:-1])
        folders = {unquote(name): None if value == _NOTHING else unquote(value) for name, mark, value in said if mark}
        return _Part(below.as_posix(), fragment, fragment.physical_schema, folders)

    def _where(self, file: _Part) -> str:
        return self._name if file.name == "." else f"{self._name.rstrip('/')}/{file.name}"

    def _type(self, column: str) -> pa.DataType:
        """The type in which all files give the column. Raises DataError if they do not agree."""
        found: tuple[_Part, pa.DataType] | None = None
        for file in self._files:
            if (kind := file.kind(column)) is None:
                other = next(other for other in self._files if other.kind(column) is not None)
                raise DataError(
                    f"{self._where(file)} has no column {column!r}, which {other.name} has"
                    f"{nearest(column, [name for name in file.names if name not in other.names])}",
                    hint="write all files with the same columns, or leave out with `drop` those that differ",
                )
            if found is None:
                found = file, kind
            elif (common := _common(found[1], kind)) is None:
                raise DataError(
                    f"{self._where(file)}: the column {column!r} is of type {kind}, and in {found[0].name} of "
                    f"{found[1]}",
                    hint="write the column with one type in all files, or leave it out with `drop`",
                )
            elif not common.equals(found[1]):
                found = file, common
        assert found is not None  # there is a file
        return found[1]

    def _column(self, file: _Part, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        if field.name not in file.own:
            return pa.repeat(pa.scalar(file.folders[field.name], pa.string()), batch.num_rows)
        column = cells.decoded(batch.column(field.name))
        dated = pa.types.is_timestamp(field.type) and getattr(column.type, "unit", "") != "ns"
        return column if column.type.equals(field.type) else column.cast(field.type, safe=dated)

    def _refuse_other_folders(self, file: _Part, batch: pa.RecordBatch) -> None:
        """Refuses a column that a folder's name gives with another value than the file."""
        for name, said in file.folders.items():
            if name not in batch.schema.names:
                continue
            found = pc.unique(batch.column(name))
            if other := [value for value in found.to_pylist() if not _same(value, said)]:
                raise DataError(
                    f"{self._where(file)}: the column {name!r} has {str(other[0])!r} in the file, and the folder's "
                    f"name says {said!r}",
                    hint="rename the column or the folder, so that it is clear which of them counts; or leave both out "
                    "with `drop`",
                )

    def _broken(self, error: Exception) -> DataError:
        kind = "Parquet" if self._kind == "parquet" else "an Arrow (Feather) file"
        hint = f"write the table again as {kind}, or name the `source` that it is"
        said = str(error).replace(self._address, self._name)
        return DataError(f"{self._name} cannot be read: {said.splitlines()[0]}", hint=hint)


def _parquet(opened: Any) -> pq.ParquetFile:
    return pq.ParquetFile(opened, buffer_size=_BUFFER, pre_buffer=False, arrow_extensions_enabled=True)


def _left_out(files: pa_fs.FileSystem, root: str, kind: Format) -> list[str]:
    """Files of the format that Arrow leaves out of a folder, relative to it: those below a name with _ or . before it.

    What macOS writes beside a file is no table.
    """
    if files.get_file_info(root).type != pa_fs.FileType.Directory:
        return []
    found = files.get_file_info(pa_fs.FileSelector(root, recursive=True))
    below = [PurePath(one.path).relative_to(root) for one in found if one.is_file]
    _refuse_lakehouse(root, below)
    hidden = [path for path in below if any(part[0] in "_." for part in path.parts)]
    rows = [path for path in hidden if path.suffix.lower() in _SUFFIXES[kind] and not path.name.startswith("._")]
    return sorted(path.as_posix() for path in rows)


_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}


def _refuse_lakehouse(root: str, below: Sequence[PurePath]) -> None:
    """Refuses a folder whose log alone says which of its files belong to the table."""
    for name in {path.parts[0] for path in below} & _LOGS.keys():
        raise DataError(
            f"{root} is a table of {_LOGS[name]}: its folder also has rows that were deleted or replaced",
            hint="write its newest version as plain Parquet into another folder",
        )


def _left_file(name: str) -> Doubt:
    what = "is a file of the table's folder, and is left out, since its name or its folder's begins with _ or ."
    return Doubt(name, what, "rename it if its rows belong to the table; else move it out of the folder")


def _without_secrets(address: str) -> str:
    """An address for messages: without a user, a password and options."""
    scheme, mark, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _same(value: Any, said: str | None) -> bool:
    """True if a cell is what a folder's name says, which is text."""
    if value is None or said is None:
        return value is None and said is None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return text == (said.lower() if isinstance(value, bool) else said) or float(text) == float(said)
    except ValueError:
        return False


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type for columns of both kinds, None if there is none; null columns fit any type."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    kinds = one, other
    if pa.types.is_null(one):
        return other
    if all(map(pa.types.is_unsigned_integer, kinds)):
        return pa.uint64()
    if all(map(cells.is_whole, kinds)) and not any(map(pa.types.is_decimal256, kinds)):
        signed = all(map(pa.types.is_integer, kinds)) and pa.uint64() not in kinds
        return pa.int64() if signed else pa.decimal128(38)
    return next((common for is_one, common in _ALIKE if all(map(is_one, kinds))), None)


_ALIKE = (
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind), pa.float64()),
    (lambda kind: pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None), pa.timestamp("us")),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, pa.timestamp("us", "UTC")),
)
"""Groups of types, and the type that columns of a group are read as."""
