"""Tables in memory, read by the Arrow C stream interface: pandas, polars, pyarrow, DuckDB and others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import DataError, EnvironmentFault
from colonnade.common.run.own_files import open_own

if TYPE_CHECKING:
    import pyarrow as pa


class InMemoryTable:
    """One member's table.

    Args:
        table: has `__arrow_c_stream__`.
    """

    def __init__(self, member: str, table: Any) -> None:
        self._member, self._table = member, table
        if not hasattr(table, "__arrow_c_stream__"):
            raise DataError(
                f"tables[{member!r}] is a {type(table).__name__}, which has no Arrow C stream",
                hint="give a table of pandas 2.2 or newer, polars, pyarrow or DuckDB; or a file in the configuration",
            )

    def write(self, path: Path) -> None:
        """Writes an Arrow file. Raises DataError for a column with values of several types, EnvironmentFault."""
        from colonnade.common.data.formats import arrow_table  # noqa: PLC0415  # pyarrow

        found = self.read()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as opened:
                arrow_table.write_arrow(found, opened)
        except OSError as failed:
            raise EnvironmentFault(
                f"{path} cannot be written: {failed.strerror or failed}", hint="make room on the disk"
            ) from failed

    def read(self) -> pa.Table:
        """The table without an unnamed row index; a named one is marked as such. Raises DataError."""
        from colonnade.common.data.formats import arrow_table  # noqa: PLC0415

        named = _index_names(self._table)
        try:
            found = arrow_table.read_arrow(self._table.reset_index() if named else self._table)
        except Exception as failed:  # the library's own, of any type
            raise DataError(
                f"tables[{self._member!r}] cannot be read: {_one_line(failed)}",
                hint="give every column values of one type and a name of its own, also beside the index",
            ) from failed
        of_file = () if named else arrow_table.index_columns(found.schema)  # an Arrow table that pandas has written
        kept = found.drop_columns([name for name in of_file if name.startswith("__index_level_")])
        return arrow_table.with_index(kept, [name for name in (*named, *of_file) if name in kept.column_names])


def _index_names(table: Any) -> list[str]:
    """Columns made from a pandas index, such as the key; none if it has no name."""
    names = [*getattr(getattr(table, "index", None), "names", ())]
    if all(name is None for name in names):
        return []
    return [f"level_{level}" if name is None else str(name) for level, name in enumerate(names)]


def _one_line(error: Exception) -> str:
    return " ".join(" ".join(str(part) for part in error.args).split()) or type(error).__name__
