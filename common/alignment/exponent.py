"""A member's secret exponent in an alignment, and the elements that it has raised to it before."""

from __future__ import annotations

import contextlib
import fcntl
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

from colonnade.common.alignment.scratch import Records, Sorter, words
from colonnade.common.crypto.group import ELEMENT, Secret, check_elements
from colonnade.common.crypto.raising import Raising
from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.files import sync

_KEY = 32
_CHECKSUM = 32
_RECORD = _KEY + ELEMENT
_BLOCK = 8192
_DRAFT = ".partial"
_JOURNAL = ".journal"
_COUNT = 8  # bytes of a chunk's number of records
_LEFT = 3600.0  # seconds without a change after which a draft is abandoned


class RaisedElements:
    """A file that maps inputs to raised results: all digests in ascending order, then all results.

    Inputs (elements, or the member's own keys) are stored as digests under a secret. `save` keeps what was looked up or
    added since opening, and may drop the rest. Memory does not grow with the number of elements: the file is mapped,
    and new ones go to a journal until `save`. A journal that a killed process has left is read in when the file is
    opened again, so that an alignment that begins anew raises nothing twice. What is kept is a function of input and
    secret: in whichever session, order or list an input returns, its result is the same.

    Args:
        secret: key of the digests and of all checksums; files under another secret are ignored.

    Attributes:
        raised: number of elements that had to be raised.
        full: why the disk took no more elements; "" while it does.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret = path, secret
        self._journal = _Journal(path, secret)
        self.raised, self.full = 0, ""
        self._open()
        self._take_in([file for file in map(_left, journals_of(path)) if file is not None])

    def _take_in(self, left: Sequence[BinaryIO]) -> None:
        """Takes in what killed processes have left, and removes it."""
        with contextlib.ExitStack() as held, contextlib.suppress(EnvironmentFault):  # told by the next `save`
            for file in left:
                held.enter_context(file)
                for records in self._journal.read(file):
                    self._keep(records[self._find(records[:, :_KEY]) < 0])
            if self._journal.records or self.full:
                self.save(drop=False)
            for file in left:
                Path(file.name).unlink(missing_ok=True)

    def _open(self) -> None:
        content = self._read()
        rows = len(content) // _RECORD
        self._known = content[: rows * _KEY].reshape(-1, _KEY)
        self._results = content[rows * _KEY :].reshape(-1, ELEMENT)
        self._used = np.zeros(rows, dtype=bool)

    def _keep(self, records: Records) -> None:
        """Adds to the journal, as long as the disk takes it: the alignment goes on without."""
        if self.full or not len(records):
            return
        try:
            self._journal.add(records)
        except OSError as failed:
            self.full = failed.strerror or str(failed)
            self._journal.close()

    def get(self, purpose: bytes, inputs: Sequence[bytes], raise_them: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """The results of some inputs, concatenated; `raise_them` raises new ones, `purpose` separates operations."""
        if not inputs:
            return b""
        hashed = (hashlib.blake2b(purpose + one, key=self._secret, digest_size=_KEY).digest() for one in inputs)
        keys = np.frombuffer(b"".join(hashed), np.uint8).reshape(-1, _KEY)
        at = self._find(keys)
        results = np.empty((len(inputs), ELEMENT), dtype=np.uint8)
        there, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        results[there] = self._results[at[there]]
        self._used[at[there]] = True
        if len(new):
            raised = raise_them([inputs[place] for place in new.tolist()])
            results[new] = np.frombuffer(raised, np.uint8).reshape(-1, ELEMENT)
            self._keep(np.hstack([keys[new], results[new]]))
            self.raised += len(new)
        return results.tobytes()

    def save(self, *, drop: bool = True) -> None:
        """Writes the file; it is on the disk when this returns. `drop=False` keeps elements that were not used."""
        if not drop:
            self._used[:] = True
        if self.full:
            raise self._unwritable(self.full)
        new = self._journal.records
        rows = int(self._used.sum()) + new
        if not rows or (not new and bool(self._used.all())):
            self._journal.close()
            return
        sorter = Sorter(rows, _KEY, _RECORD, self._path.parent)
        rows = 0
        for records in self._kept():
            sorter.add(records)
            rows += len(records)
        draft: Path | None = None
        try:
            self._remove_leftovers()
            opened, name = mkstemp(_DRAFT, f"{self._path.name}.{os.getpid()}.", self._path.parent)
            draft = Path(name)
            with os.fdopen(opened, "w+b") as file:
                lay_down(file, sorter, rows)
                file.write(self._checksum(file, rows))
                file.flush()
                sync(file.fileno())
            draft.replace(self._path)
            self._journal.close()
            self._open()
        except OSError as failed:
            if draft is not None:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
            self._journal.close()
            raise self._unwritable(str(failed.strerror)) from failed

    def _unwritable(self, reason: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self._path} cannot be written: {reason}", hint="make room; rows are aligned without it"
        )

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
        yield from self._journal.own()

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


def journals_of(path: Path) -> list[Path]:
    """The journals of a file of raised elements."""
    return list(path.parent.glob(f"{path.name}.*{_JOURNAL}"))


def _left(journal: Path) -> BinaryIO | None:
    """The journal of a process that has ended, locked; None for that of a living one."""
    file: BinaryIO | None = None
    try:
        file = journal.open("rb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if file is not None:
            file.close()
        return None
    return file


class _Journal:
    """New records of one process in chunks, each with a checksum under the secret: a kill spoils the last at most."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret, self.records = path, secret, 0
        self._file: BinaryIO | None = None
        self._name = ""

    def add(self, records: Records) -> None:
        if self._file is None:
            opened, self._name = mkstemp(_JOURNAL, f"{self._path.name}.", self._path.parent)
            self._file = os.fdopen(opened, "w+b", buffering=0)
            fcntl.flock(opened, fcntl.LOCK_EX)  # until this process ends, however it ends
        for some in np.array_split(records, -(-len(records) // _BLOCK)):
            chunk = len(some).to_bytes(_COUNT) + some.tobytes()
            left = memoryview(chunk + self._checksum(chunk))
            while left:
                left = left[self._file.write(left) :]
            self.records += len(some)

    def own(self) -> Iterator[Records]:
        return iter(()) if self._file is None else self.read(self._file)

    def read(self, file: BinaryIO) -> Iterator[Records]:
        """The chunks of a journal, up to the first that is torn, altered or under another secret."""
        file.seek(0)
        while len(head := file.read(_COUNT)) == _COUNT and 0 < (count := int.from_bytes(head)) <= _BLOCK:
            chunk = head + file.read(count * _RECORD)
            if file.read(_CHECKSUM) != self._checksum(chunk):
                return
            yield np.frombuffer(chunk, np.uint8)[_COUNT:].reshape(-1, _RECORD)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            Path(self._name).unlink(missing_ok=True)
        self._file, self.records = None, 0

    def _checksum(self, chunk: bytes) -> bytes:
        return hashlib.blake2b(chunk, key=self._secret, digest_size=_CHECKSUM, person=b"raised journal").digest()


def lay_down(file: BinaryIO, sorter: Sorter, rows: int) -> None:
    at = 0
    for records in sorter.sorted():
        for start, part in ((at * _KEY, records[:, :_KEY]), (rows * _KEY + at * ELEMENT, records[:, _KEY:])):
            file.seek(start)
            file.write(np.ascontiguousarray(part).tobytes())
        at += len(records)


_OWN, _FORTH, _BACK = b"k", b"f", b"b"  # purposes: our own keys, elements, elements that return


class Exponent:
    """Raises keys and elements to a member's secret.

    Args:
        scalar: the secret, 32 bytes.
        known: results of earlier alignments with this secret; None raises everything.
    """

    width = ELEMENT  # bytes of an element
    proves = False

    def __init__(self, scalar: bytes, raising: Raising, known: RaisedElements | None = None) -> None:
        self._secret, self._raising, self._known = Secret(scalar), raising, known
        self._inverse = self._secret.inverse()

    def keys(self, keys: Sequence[bytes], tag: bytes) -> bytes:
        """Hashes our own keys and raises them; concatenated."""
        if self._known is None:
            return self._raising.keys(self._secret, keys, tag)
        return self._known.get(_OWN + tag, keys, lambda new: self._raising.keys(self._secret, new, tag))

    def elements(self, elements: bytes) -> bytes:
        """Raises concatenated elements to the secret. Raises InputError if one is no element or has small order."""
        return self._raised(_FORTH, self._secret, elements)

    def take_back(self, elements: bytes) -> bytes:
        """Removes the secret from concatenated elements."""
        return self._raised(_BACK, self._inverse, elements)

    def check(self, elements: bytes) -> None:
        check_elements(elements)

    def _raised(self, purpose: bytes, secret: Secret, elements: bytes) -> bytes:
        if self._known is None or len(elements) % ELEMENT:
            return self._raising.elements(secret, elements)
        apart = [elements[at : at + ELEMENT] for at in range(0, len(elements), ELEMENT)]
        return self._known.get(purpose, apart, lambda new: self._raising.elements(secret, b"".join(new)))


MakeExponent = Callable[[bytes], Exponent]
"""Makes an exponent of a fresh secret of 32 bytes, or ignores the secret and returns a kept one."""
