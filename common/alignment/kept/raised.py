"""Elements that a member has raised to its exponent before, so that they need not be raised again."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from colonnade.common.alignment.scratch import Records, Scratch
from colonnade.common.alignment.sorting import Sorter, words
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.errors import EnvironmentFault

_KEY = 32
_CHECKSUM = 32
_RECORD = _KEY + ELEMENT
_BLOCK = 8192
_DRAFT = ".partial"
_LEFT = 3600.0  # seconds without a change after which a draft is abandoned


class RaisedElements:
    """A file that maps inputs to raised results: all digests in ascending order, then all results.

    Inputs (elements, or the member's own keys) are stored as digests under a secret. `save` keeps what was looked up or
    added since opening, and may drop the rest. Memory does not grow with the number of elements: the file is mapped,
    and new ones go to an unnamed file until `save`.

    Args:
        secret: key of the digests and of the file's checksum; a file under another secret is ignored.

    Attributes:
        raised: number of elements that had to be raised.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret = path, secret
        content = self._read()
        rows = len(content) // _RECORD
        self._known = content[: rows * _KEY].reshape(-1, _KEY)
        self._results = content[rows * _KEY :].reshape(-1, ELEMENT)
        self._used = np.zeros(rows, dtype=bool)
        self._added = Scratch(_RECORD, path.parent)
        self.raised = 0

    def get(self, purpose: bytes, inputs: Sequence[bytes], raise_them: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """The results of some inputs, concatenated; `raise_them` raises new ones, `purpose` separates operations."""
        if not inputs:
            return b""
        keys = np.frombuffer(b"".join(self._digest(purpose + one) for one in inputs), np.uint8).reshape(-1, _KEY)
        at = self._find(keys)
        results = np.empty((len(inputs), ELEMENT), dtype=np.uint8)
        there, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        results[there] = self._results[at[there]]
        self._used[at[there]] = True
        if len(new):
            raised = raise_them([inputs[place] for place in new.tolist()])
            results[new] = np.frombuffer(raised, np.uint8).reshape(-1, ELEMENT)
            self._added.write(self.raised, np.hstack([keys[new], results[new]]))
            self.raised += len(new)
        return results.tobytes()

    def save(self, *, drop: bool = True) -> None:
        """Writes the file; it is on the disk when this returns. `drop=False` keeps elements that were not used."""
        if not drop:
            self._used[:] = True
        rows = int(self._used.sum()) + self.raised
        if not rows or (not self.raised and bool(self._used.all())):
            return
        sorter = Sorter(rows, _KEY, _RECORD, self._path.parent)
        for records in self._kept():
            sorter.add(records)
        draft: Path | None = None
        try:
            self._remove_leftovers()
            opened, name = mkstemp(_DRAFT, f"{self._path.name}.{os.getpid()}.", self._path.parent)
            draft = Path(name)
            with os.fdopen(opened, "w+b") as file:
                lay_down(file, sorter, rows)
                file.write(self._checksum(file, rows))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as failed:
            if draft is not None:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
            raise EnvironmentFault(
                f"{self._path} cannot be written: {failed.strerror}", hint="make room; rows are aligned without it"
            ) from failed

    def _remove_leftovers(self) -> None:
        """Removes drafts of killed processes: a draft still being written was modified recently."""
        for draft in self._path.parent.glob(f"{self._path.name}*{_DRAFT}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - draft.stat().st_mtime > _LEFT:
                    draft.unlink()

    def _kept(self) -> Iterator[Records]:
        used = np.flatnonzero(self._used)
        for at in range(0, len(used), _BLOCK):
            some = used[at : at + _BLOCK]
            yield np.hstack([self._known[some], self._results[some]])
        for at in range(0, self.raised, _BLOCK):
            yield self._added.read(at, min(_BLOCK, self.raised - at))

    def _find(self, keys: Records) -> NDArray[np.int64]:
        if not len(self._known):
            return np.full(len(keys), -1, dtype=np.int64)
        known, wanted = words(self._known, _KEY), words(keys, _KEY)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[at] == wanted, at, -1)

    def _read(self) -> NDArray[np.uint8]:
        """The file without its checksum; empty if it is torn or under another secret."""
        with contextlib.suppress(OSError, ValueError), self._path.open("rb") as file:
            rows, rest = divmod(os.fstat(file.fileno()).st_size - _CHECKSUM, _RECORD)
            if rows > 0 and not rest:
                whole = self._checksum(file, rows)
                if file.read(_CHECKSUM) == whole:
                    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    return np.frombuffer(pages, dtype=np.uint8)[: rows * _RECORD]
        return np.empty(0, dtype=np.uint8)

    def _digest(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._secret, digest_size=_KEY).digest()

    def _checksum(self, file: BinaryIO, rows: int) -> bytes:
        """Digest of a file's records; leaves the file positioned at their end."""
        digest = hashlib.blake2b(key=self._secret, digest_size=_CHECKSUM, person=b"raised elements")
        file.seek(0)
        left = rows * _RECORD
        while left:
            piece = file.read(min(left, _BLOCK * _RECORD))
            digest.update(piece)
            left -= len(piece) or left
        return digest.digest()


def lay_down(file: BinaryIO, sorter: Sorter, rows: int) -> None:
    at = 0
    for records in sorter.sorted():
        for start, part in ((at * _KEY, records[:, :_KEY]), (rows * _KEY + at * ELEMENT, records[:, _KEY:])):
            file.seek(start)
            file.write(np.ascontiguousarray(part).tobytes())
        at += len(records)
