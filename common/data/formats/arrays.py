"""Tables in numpy's own files (.npy), mapped into memory.

A matrix of numbers has columns column_0, column_1, ..; a structured array its fields' names; a one-dimensional array
one column. A file that needs pickle is refused: it could run code.
"""

from __future__ import annotations

import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from colonnade.common.data.table import BATCH
from colonnade.common.errors import DataError

# numpy parses the head of a file as Python's own literals.
_MALFORMED = (OSError, ValueError, TypeError, OverflowError, SyntaxError, RecursionError, tokenize.TokenError)
_LONGEST_HEAD = 1 << 23  # bytes: 200,000 columns
_HINT = "save numbers or words of (rows,) or (rows, columns), or a structured array, with numpy.save"


class ArrayFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_head(path))
        except _MALFORMED as error:
            raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
        plain = array.dtype.names is None
        fits = array.ndim in ((1, 2) if plain else (1,)) and (not plain or array.dtype.kind in "biufU")
        if not fits:
            raise DataError(f"{path}: expected a table, got {array.shape} of {array.dtype}", hint=_HINT)
        self._array = array[:, None] if plain and array.ndim == 1 else array
        self.header = tuple(array.dtype.names or (f"column_{place}" for place in range(self._array.shape[1])))
        self._places = {name: place for place, name in enumerate(self.header)}

    def __str__(self) -> str:
        return str(self._path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._array), BATCH):
            rows = self._array[start : start + BATCH]
            try:
                # pyarrow takes whole columns in the machine's own order of bytes.
                found = [pa.array(_native(self._of(rows, name))) for name in columns]
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:  # a character that is none
                raise DataError(f"{self._path} cannot be read: {error}", hint=_HINT) from error
            yield pa.RecordBatch.from_arrays(found, names=list(columns))

    def place(self, row: int) -> str:
        return f"{self._path}, row {row + 1}"

    def _of(self, rows: np.ndarray, name: str) -> np.ndarray:
        return rows[name] if rows.dtype.names else rows[:, self._places[name]]


def _head(path: Path) -> int:
    """Bytes of the head, which numpy parses. Raises ValueError if it is longer than the file (numpy allocates before it
    reads), or too long for names of columns.
    """
    with path.open("rb") as file:
        start = file.read(12)
    size = int.from_bytes(start[8:12] if start[6:7] in (b"\2", b"\3") else start[8:10], "little")
    if size > path.stat().st_size:
        raise ValueError("its head is longer than the file")
    if size > _LONGEST_HEAD:
        raise ValueError(f"its head has more than {_LONGEST_HEAD >> 20} MB")
    return max(size, 1)


def _native(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("="))
