"""A party's encoded rows in one file that is mapped into memory, so that no more of a table is in memory than a batch.

The file has the layout of safetensors: `values`, float32 (rows, columns), and `places`, where each row of the agreed
order stands in it. Training rows come first, in the order of `Partition.train`: batches in sequence and by blocks read
long stretches. The header has a digest of what the rows are made of, and a checksum of the content; a file with another
digest, or a damaged one, is made again.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from colonnade.common.data.columns.scale import Columns
from colonnade.common.errors import DataError, disk_faults
from colonnade.common.run.files import durable_file, state_of

_HEADER = 4096  # bytes, so that values begin with a page
_PIECE = 1 << 20  # bytes that are read ahead, and checked at a time
_DENSE = 8  # rows of a piece, on average, from which it is read as a whole


class StoredColumns(Columns):
    """Columns whose values are in a file: `columns[rows]` reads these rows.

    Raises DataError where rows are read from a file that was changed since it was opened.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: Path | None,
        shape: tuple[int, int],
        *,
        names: Sequence[tuple[str, str]],
        placed: bool,
    ) -> None:
        self.table, self.names, self.doubts = None, names, ()
        self._path, self._state, self._device = path, state_of(os.fstat(file.fileno())), torch.device("cpu")
        self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows, columns = shape
        self._values = np.frombuffer(self._pages, np.float32, rows * columns, _HEADER).reshape(shape)
        self._places = np.frombuffer(self._pages, np.int32, rows, _HEADER + self._values.nbytes) if placed else None
        self._piece = max(1, _PIECE // max(4 * columns, 1))  # rows
        self._asked: set[int] = set()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape

    def __getitem__(self, rows: Tensor) -> Tensor:
        self._refuse_changed()
        at = rows.cpu().numpy()
        if len(at) and at.min() < 0:
            raise IndexError(f"row {at.min()}")
        if self._places is not None:
            at = self._places[at]
        self._read_ahead(at)
        return torch.from_numpy(np.take(self._values, at, axis=0)).to(self._device)

    def settle(self) -> None:
        """Accepts the file's new name, which counts as a change."""
        if self._path is not None and (found := state_of(self._path.stat()))[:-1] == self._state[:-1]:
            self._state = found

    def to(self, device: torch.device) -> Columns:
        self._device = device
        return self

    def _refuse_changed(self) -> None:
        if self._path is None:
            return  # a file without a name is nobody else's
        with suppress(OSError):
            if state_of(self._path.stat()) == self._state:
                return
        raise DataError(
            f"{self._path} was changed, replaced or removed while it was in use",
            hint="begin or resume the run again: the file is then made anew from the table; nothing else may write it",
            shared="its file of rows was changed while it was in use",
        )

    def _read_ahead(self, places: np.ndarray) -> None:
        """Asks the system to read ahead the parts of the file with many requested rows."""
        pieces = np.unique(places // self._piece)
        if len(pieces) * _DENSE > len(places):
            return
        wanted = {int(piece) for piece in pieces}
        for piece in wanted - self._asked:
            begin = piece * self._piece * self._values.strides[0]
            start = (_HEADER + begin) // mmap.PAGESIZE * mmap.PAGESIZE
            length = min(self._piece * self._values.strides[0] + mmap.PAGESIZE, len(self._pages) - start)
            self._pages.madvise(mmap.MADV_WILLNEED, start, length)
        self._asked = wanted


class RowStore:
    """The file of a member's rows, `path`, or one without a name in `folder` where `path` is None."""

    def __init__(self, path: Path | None, folder: Path) -> None:
        self._path, self._folder = path, folder

    def opened(self, key: str, names: Sequence[tuple[str, str]]) -> StoredColumns | None:
        """The stored rows, if an intact file has this key."""
        if self._path is None:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError), self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None
            header = json.loads(file.read(_HEADER)[8:])
            said, shape = header["__metadata__"], tuple(header["values"]["shape"])
            if said["key"] != key or found.st_size != header["places"]["data_offsets"][1] + _HEADER:
                return None
            file.seek(_HEADER)
            crc = 0
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
            if said["crc"] == f"{crc:08x}":
                return StoredColumns(file, self._path, shape, names=names, placed=True)
        return None

    def written(
        self,
        key: str,
        blocks: Iterable[Tensor],
        shape: tuple[int, int],
        names: Sequence[tuple[str, str]],
        order: np.ndarray | None = None,
    ) -> StoredColumns:
        """Writes the rows atomically, in the file's order, and opens them.

        Args:
            order: numbers of the rows in the agreed order, int32 (rows,); None if it is the file's.

        Raises EnvironmentFault if the disk refuses it.
        """
        with disk_faults(
            f"{self._path or self._folder} cannot take the table's rows",
            "make room there, choose another --out, or leave out `store: disk`",
        ):
            with TemporaryFile(dir=self._folder) if self._path is None else durable_file(self._path, 0o600) as file:
                _write(file, key, blocks, shape, order)
                stored = StoredColumns(file, self._path, shape, names=names, placed=order is not None)
            stored.settle()
            return stored


def _write(
    file: BinaryIO, key: str, blocks: Iterable[Tensor], shape: tuple[int, int], order: np.ndarray | None
) -> None:
    rows, columns = shape
    file.write(bytes(_HEADER))
    crc = done = 0
    for block in blocks:
        content = block.contiguous().numpy()
        file.write(content.data)
        crc, done = zlib.crc32(content.data, crc), done + len(content)
    assert done == rows
    tensors = {"values": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, end := 4 * rows * columns]}}
    if order is not None:
        for begin in range(0, rows, _PIECE):
            count = min(_PIECE, rows - begin)
            here = np.flatnonzero((order >= begin) & (order < begin + count))
            places = np.empty(count, np.int32)
            places[order[here] - begin] = here
            file.write(places.data)
            crc = zlib.crc32(places.data, crc)
        tensors["places"] = {"dtype": "I32", "shape": [rows], "data_offsets": [end, end + 4 * rows]}
    header = json.dumps({"__metadata__": {"key": key, "crc": f"{crc:08x}"}, **tensors}).encode()
    file.seek(0)
    file.write((_HEADER - 8).to_bytes(8, "little") + header.ljust(_HEADER - 8))
    file.flush()
