"""Temporary records on the disk, which an alignment would otherwise hold in memory."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.errors import EnvironmentFault

Records = NDArray[np.uint8]
"""(records, width)."""

NUMBER = 8
"""Bytes of a position."""


class Scratch:
    """A file of records of one width. Its pages are in the system's cache, not in the process's memory.

    The file has no name, so no other process can open it; it is removed with this object or when the process ends.

    Args:
        width: bytes of a record.
        folder: on the disk that holds it; None for the system's temporary folder.

    Raises:
        EnvironmentFault: the disk refuses it; also raised by methods that write or read.
    """

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self._width, self._folder = width, folder
        with self._refused():
            file = TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115  # closed with this object
        self._fd = file.fileno()
        # Not earlier: a thread whose caller was cancelled may still write.
        weakref.finalize(self, file.close)

    def write(self, at: int, records: Records) -> None:
        """Writes records (n, width) from a position on; unwritten records are zeros."""
        self._move(os.pwritev, at, np.ascontiguousarray(records))

    def read(self, at: int, count: int) -> Records:
        records = np.empty((count, self._width), dtype=np.uint8)
        self._move(os.preadv, at, records)
        return records

    def pick(self, rows: NDArray[np.int64]) -> Records:
        """Reads written records at any positions."""
        if not len(rows):
            return np.empty((0, self._width), dtype=np.uint8)
        with self._refused():
            pages = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        return np.frombuffer(pages, dtype=np.uint8).reshape(-1, self._width)[rows]

    def numbers(self, count: int) -> Tensor:
        """The first `count` positions of a file of positions, int64 (count,), mapped rather than read."""
        if not count:
            return torch.empty(0, dtype=torch.int64)
        with self._refused():
            pages = mmap.mmap(self._fd, count * NUMBER, access=mmap.ACCESS_COPY)
        return torch.frombuffer(pages, dtype=torch.int64)

    def _move(self, call: Callable[[int, list[memoryview], int], int], at: int, records: Records) -> None:
        left, place = memoryview(records.reshape(-1).data), at * self._width
        with self._refused():
            while left:
                if not (done := call(self._fd, [left], place)):
                    raise OSError(0, "it ends early")
                left, place = left[done:], place + done

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as failed:
            raise EnvironmentFault(
                f"rows cannot be aligned by way of {self._folder or gettempdir()}: {failed.strerror}",
                hint="make room there: an alignment needs some 100 bytes a key and member, until it ends",
            ) from failed


def to_records(numbers: Tensor) -> Records:
    """Positions, int64 (n,), as records (n, 8)."""
    return numbers.contiguous().numpy().reshape(-1, 1).view(np.uint8)


def to_numbers(records: Records) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(records).view(np.int64).reshape(-1))


def places_of(span: slice) -> Records:
    """The positions of a block, (n, 8)."""
    return to_records(torch.arange(span.start, span.stop))
