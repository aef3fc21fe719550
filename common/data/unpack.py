"""Packed files, unpacked once a machine: the other processes of a run read what the first has made."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
from pathlib import Path

from common.data.places import cache

_WORTH_A_COPY = 1 << 20  # bytes packed; what is smaller inflates in no time


def unpacked(path: Path) -> Path:
    """The plain copy of a .gz file in the user's cache; a small file itself, or where no cache can be kept.

    Inflating MNIST takes a party a quarter of a second of processor time, reading the copy a tenth
    of that. The copy belongs to one state of one file (path, size and time of change), and
    appears whole or not at all.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read or inflated.
    """
    state = path.stat()
    if state.st_size < _WORTH_A_COPY:
        return path
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    try:
        folder = cache() / "unpacked"
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"{key}-{path.stem}"
        if copy.exists():
            return copy
        with (folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one inflates and the rest wait
            if not copy.exists():
                _inflate(path, copy)
        return copy
    except PermissionError:
        return path


def _inflate(path: Path, copy: Path) -> None:
    draft = copy.with_suffix(f".{os.getpid()}")
    try:
        with gzip.open(path) as packed, draft.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)
