"""The result of a query by DuckDB over files or a database of its own; the extra `duckdb` installs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from colonnade.common.data.formats.arrow_table import refuse_extensions
from colonnade.common.data.table import BATCH, refuse_twice
from colonnade.common.errors import DataError, EnvironmentFault

try:
    import duckdb
except ImportError:
    raise EnvironmentFault("DuckDB is not installed", hint="pip install 'colonnade[duckdb]'") from None


class DuckDbQuery:
    """Result of a SELECT, in its own order, batch by batch.

    Args:
        path: a database, opened read-only; None for none.
        base: the folder that files in the query are relative to.

    `categories` as in `Described` are columns of an ENUM. Raises DataError if the query or the database cannot be used.
    """

    def __init__(self, query: str, path: Path | None, base: Path) -> None:
        self._query, self._name, self._base = query.strip().rstrip(";"), f"{path or 'DuckDB'}, query", base
        try:
            self._database = duckdb.connect(str(path or ":memory:"), read_only=path is not None)
            self._link().sql(f"select * from ({self._query}) limit 0")  # noqa: S608  # refuses all but a select
            found = self._link().sql(self._query)
        except duckdb.Error as error:
            raise self._failed(error) from None
        self.header, self.index, self.unwritten = tuple(found.columns), (), ()
        kinds = dict(zip(self.header, found.types, strict=True))
        self.categories = tuple(name for name, kind in kinds.items() if kind.id == "enum")
        self._json = {name for name, kind in kinds.items() if str(kind) == "JSON"}
        refuse_twice(str(self), self.header, "give one of them another name (AS)")

    def __str__(self) -> str:
        return self._name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if found := [name for name in columns if name in self._json]:
            name = found[0]
            raise DataError(
                f"{self}: the column {name!r} is JSON, whose words have quotation marks",
                hint=f"ask for its text, as `{name} ->> '$' as {name}`, or leave it out with `drop`",
            )
        named = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns)
        asked = f"select {named} from ({self._query})"  # noqa: S608  # the owner's own query
        try:
            reader = self._link().sql(asked).to_arrow_reader(BATCH)
            refuse_extensions(str(self), reader.schema)
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failed(error) from None

    def place(self, row: int) -> str:
        return f"{self}, row {row + 1}"

    def _link(self) -> duckdb.DuckDBPyConnection:
        link = self._database.cursor()
        link.execute("set file_search_path = ?", [str(self._base)])
        link.execute("set threads = 1")  # a resumed run has to see the same order of rows
        return link

    def _failed(self, error: Exception) -> DataError:
        return DataError(f"{self}: {str(error).splitlines()[0]}", hint="try the same with DuckDB itself")
