"""Matrices on the disk instead of in memory, in files without a name.

No other process can open such a file, and it is removed when nothing maps it any more. Its pages are in the system's
cache, and count as no memory of the process.
"""

from __future__ import annotations

import mmap
import os
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import torch
from torch import Tensor

from colonnade.common.errors import disk_faults

_BLOCK = 65_536  # rows that are read at a time
_BUCKET = 1 << 24  # bytes that are sorted at a time
_NONE = 65_535  # the bucket of rows that are left out


class DiskMatrix:
    """A matrix that is written row by row.

    Args:
        folder: on the disk that holds it.

    Raises EnvironmentFault if the disk refuses it; also raised by `append` and `mapped`.
    """

    def __init__(self, columns: int, folder: Path, dtype: type = np.float64) -> None:
        self._columns, self._dtype, self._folder = columns, dtype, folder
        with _refused(folder):
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  # closed by `mapped`, or with this object

    def append(self, rows: np.ndarray) -> None:
        """Adds rows (n, columns)."""
        with _refused(self._folder):
            self._file.write(np.ascontiguousarray(rows, self._dtype).data)

    def put(self, row: int, rows: np.ndarray) -> None:
        """Writes rows (n, columns) from row `row` on."""
        left = memoryview(np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data)
        at = row * self._columns * np.dtype(self._dtype).itemsize
        with _refused(self._folder):
            while left:
                done = os.pwrite(self._file.fileno(), left, at)
                left, at = left[done:], at + done

    def mapped(self) -> np.ndarray:
        """The matrix (rows, columns). Nothing can be added afterwards."""
        with _refused(self._folder), self._file as file:
            file.flush()
            size = os.fstat(file.fileno()).st_size
            pages = mmap.mmap(file.fileno(), size) if size else bytearray()
        return np.frombuffer(pages, self._dtype).reshape(-1, self._columns)


def training_first(train: np.ndarray, rows: int) -> np.ndarray:
    """Numbers of all rows, int32 (rows,): those of training in their order, then the others, ascending."""
    others = np.ones(rows, bool)
    others[train] = False
    order = np.empty(rows, np.int32)
    order[: len(train)] = train
    order[len(train) :] = np.flatnonzero(others)
    return order


def in_order(values: Tensor, index: Tensor | np.ndarray, folder: Path) -> Tensor:
    """values[index] of a mapped matrix (n, columns), mapped too, with `index` whole numbers (m,).

    Rows are dealt to buckets of the new order in one pass over the matrix, and each bucket is sorted in a second:
    a disk reads and writes long stretches.
    """
    table, rows = values.numpy(), np.asarray(index)
    size = max(1, _BUCKET // (table.strides[0] or 1), -(-len(rows) // (_NONE - 1)))
    made = DiskMatrix(table.shape[1], folder, table.dtype.type)
    dealt = None if len(rows) <= size else _dealt(table, rows, size, folder)
    for begin in range(0, len(rows), size):
        own = rows[begin : begin + size]
        if dealt is None:
            made.append(table[own])
        else:
            place = np.empty(len(own), np.int64)  # of each row in its bucket, which has them as the table has
            place[np.argsort(own)] = np.arange(len(own))
            made.append(dealt[begin : begin + size][place])
    return torch.from_numpy(made.mapped())


def _dealt(table: np.ndarray, rows: np.ndarray, size: int, folder: Path) -> np.ndarray | None:
    """The rows in buckets of `size` in their new order, each in table order; None if a row repeats."""
    bucket = np.full(len(table), _NONE, np.uint16)
    for number, begin in enumerate(range(0, len(rows), size)):
        bucket[rows[begin : begin + size]] = number
    if np.count_nonzero(bucket != _NONE) != len(rows):
        return None
    made = DiskMatrix(table.shape[1], folder, table.dtype.type)
    free = np.arange(0, len(rows), size)  # the next place of each bucket
    for begin in range(0, len(table), _BLOCK):
        of = bucket[begin : begin + _BLOCK]
        order = np.argsort(of, kind="stable")
        block, ends = table[begin : begin + _BLOCK][order], np.searchsorted(of[order], np.arange(len(free) + 1))
        for number, (first, end) in enumerate(pairwise(ends)):
            if end > first:
                made.put(int(free[number]), block[first:end])
                free[number] += end - first
    return made.mapped()


def _refused(folder: Path) -> AbstractContextManager[None]:
    return disk_faults(
        f"a table cannot be kept in {folder}",
        "make room there: with `store: disk` a table takes 28 bytes a number until it is encoded, and 4 then",
    )
