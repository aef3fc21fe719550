"""An Arrow table in memory, or anything that exports one as a stream: pandas, Polars, DuckDB, PyArrow.

A row index of pandas among its columns is no feature: its values say where a row stood, and perhaps its outcome.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from colonnade.common.data.table import BATCH, refuse_twice
from colonnade.common.errors import DataError


class ArrowTable:
    """A table in memory, for sources of other packages; `index` and `unwritten` as in `HasIndex`.

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

    def __str__(self) -> str:
        return self._name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches(max_chunksize=BATCH)

    def place(self, row: int) -> str:
        return f"{self._name}, row {row + 1}"


def read_arrow(content: Any) -> pa.Table:
    """Anything that has `__arrow_c_stream__`. Raises the library's own errors."""
    return pa.table(content)


def write_arrow(table: pa.Table, file: IO[bytes]) -> None:
    with pa.ipc.new_file(pa.PythonFile(file, "wb"), table.schema) as opened:
        opened.write_table(table, max_chunksize=BATCH)


_UNNAMED = re.compile(r"__index_level_\d+__")
"""An index without a name, also in a file that has lost the metadata."""

_KEY = b"pandas"


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that are a row index, by their names and by the metadata that pandas writes."""
    stored = {found for found in _entries(schema) if isinstance(found, str)}
    return tuple(name for name in schema.names if name in stored or _UNNAMED.fullmatch(name))


def unwritten_index(schema: pa.Schema) -> tuple[str, ...]:
    """Names of an index that counts rows: pandas writes where it begins and ends, and no column."""
    said = (found.get("name") for found in _entries(schema) if isinstance(found, dict))
    return tuple(name for name in said if isinstance(name, str))


def with_index(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with these columns as its row index, and without other metadata."""
    said = {_KEY: json.dumps({"index_columns": list(names)}).encode()} if names else None
    return table.replace_schema_metadata(said)


def _entries(schema: pa.Schema) -> list[Any]:
    try:
        found = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    except ValueError:
        return []
    entries = found.get("index_columns") if isinstance(found, dict) else None
    return entries if isinstance(entries, list) else []
