"""Tables in Parquet or Arrow IPC (Feather): a file, or a folder of files whose order is that of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from colonnade.common.data.known_sets.places import refuse_unusable
from colonnade.common.data.table import BATCH
from colonnade.common.errors import DataError

Format = Literal["parquet", "arrow"]


class ArrowFiles:
    """Files as a table: batches are read on demand, and only the requested columns.

    Raises:
        DataError: a path holds nothing of the format, or two columns have the same name.
    """

    def __init__(self, path: Path, kind: Format) -> None:
        self._path, self._kind = path, kind
        if path.is_file():
            refuse_unusable(path)
        try:
            self._dataset = pa_dataset.dataset(path, format=kind)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken(error) from error
        if not self._dataset.files:
            raise DataError(
                f"{path} is a folder without files", hint="name the folder or the file that holds the table"
            )
        for place, name in enumerate(self.header):
            if name in self.header[:place]:
                raise DataError(f"{path}: two columns are called {name!r}", hint="rename one of them")

    @cached_property
    def header(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self._dataset.schema.names)

    def __str__(self) -> str:
        """Its path."""
        return str(self._path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns of all rows. Raises DataError if a file is broken."""
        try:
            # One thread without read-ahead: memory holds one row group's columns, not the table.
            yield from self._dataset.to_batches(
                columns=list(columns), batch_size=BATCH, batch_readahead=1, fragment_readahead=1, use_threads=False
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken(error) from error

    def place(self, row: int) -> str:
        """`FILE, row 7`, counted from 1."""
        return f"{self._path}, row {row + 1}"

    def _broken(self, error: Exception) -> DataError:
        kind = "Parquet" if self._kind == "parquet" else "an Arrow (Feather) file"
        hint = f"write the table again as {kind}, or name the `source` that it is"
        return DataError(f"{self._path} cannot be read: {str(error).splitlines()[0]}", hint=hint)
