"""An Arrow table in memory, or anything that exports one as a stream: pandas, Polars, DuckDB, PyArrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from colonnade.common.data.formats.names import refuse_twice
from colonnade.common.data.formats.pandas_index import index_columns, unwritten_index
from colonnade.common.data.table import BATCH
from colonnade.common.errors import DataError


class ArrowTable:
    """A table in memory, for sources of other packages.

    Args:
        content: has `__arrow_c_stream__`.
        name: of the table, in messages.

    Attributes:
        header: the columns' names.
        index: those that are a row index of pandas.
        unwritten: names of such an index that is not there as a column.

    Raises:
        DataError: it is no table, or two columns have the same name.
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
        """Its name."""
        return self._name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns of all rows."""
        yield from self._table.select(list(columns)).to_batches(max_chunksize=BATCH)

    def place(self, row: int) -> str:
        """`NAME, row 7`, counted from 1."""
        return f"{self._name}, row {row + 1}"
