"""Packed files, unpacked once per machine: the other processes of a run read the copy that the first made."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from colonnade.common.data.known_sets.catalogue import cache
from colonnade.common.errors import DataError
from colonnade.common.run.files import open_own, state_of

_WORTH_A_COPY = 1 << 20  # packed bytes; smaller files inflate quickly enough
_OPEN: Mapping[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The plain bytes of a file, packed (.gz, .xz) or not. Raises DataError, also while it is open."""
    try:
        with _opened(unpacked(path) if path.suffix in _OPEN else path) as stream:
            yield stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="get the original file again") from error


def unpacked(path: Path) -> Path:
    """The plain copy of a packed file in the user's cache; the file itself if it is small or no cache can be kept.

    Inflating MNIST takes a quarter of a second of processor time, reading the copy a tenth of that; a batch of CIFAR-10
    in xz takes seconds. The copy is of one state of one file and created atomically.
    """
    state = path.stat()
    if state.st_size < _WORTH_A_COPY:
        return path
    key = hashlib.sha256(f"{path.resolve()} {state_of(state)}".encode()).hexdigest()[:16]
    try:
        folder = cache() / "unpacked"
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"{key}-{path.stem}"
        if copy.exists():
            return copy
        with os.fdopen(open_own(folder / f"{key}.lock", os.O_WRONLY | os.O_CREAT), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one inflates and the rest wait
            if not copy.exists():
                _inflate(path, copy)
        return copy
    except PermissionError:
        return path


def _inflate(path: Path, copy: Path) -> None:
    draft = copy.with_suffix(f".{os.getpid()}")
    try:
        with _opened(path) as packed, draft.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, _OPEN[path.suffix](path) if path.suffix in _OPEN else path.open("rb"))


CHUNK = 512


def pick(stream: BinaryIO, width: int, chosen: np.ndarray, into: np.ndarray) -> bool:
    """Copies the chosen bytes of the next rows; False if the stream ends before.

    Args:
        width: bytes of a row; the stream is at the beginning of one.
        chosen: positions, int64 (k,), each below `width`.
        into: uint8 (rows, k), contiguous.
    """
    buffer = np.empty((CHUNK if width > 1 else CHUNK**2, width), np.uint8)
    for done in range(0, len(into), len(buffer)):
        rows = buffer[: len(into) - done]
        if stream.readinto(rows) != rows.size:  # type: ignore[attr-defined]
            return False
        # mode: with the default one `take` makes a copy.
        np.take(rows, chosen, axis=1, out=into[done : done + len(rows)], mode="clip")
    return True
