"""A ledger's lines, each bound to all before it by a hash.

A line ends in `"chain": H`, where H is SHA-256 over the hash of the line before and the line without its own. Who has
noted the newest hash elsewhere can tell later whether anything up to it was altered, removed or put in between. Who
rewrites the whole file makes a chain that fits: only the noted hash tells then.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.runtime.json_lines import is_torn

BEGINNING = "0" * 64
"""What stands for the hash before the first line."""

_MARK = ', "chain": "'
_END = '"}'
_TAIL = 65_536  # bytes at a file's end in which its last whole line is looked for first


class Chain:
    """A file that chained lines are added to, each written at once.

    Several may write to one file, each line under a lock: who finds it longer than it was left goes on from its newest
    line. One that was cut short, by a crash or a full disk, is closed first.

    Args:
        path: where it lies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._head, self._size = BEGINNING, -1

    def append(self, entry: Mapping[str, Any], *, durably: bool = False) -> None:
        """Adds a line.

        Args:
            entry: what it says, not empty.
            durably: whether it must be on the disk before this returns.

        Raises:
            OSError: the disk does not take it.
        """
        # Unbuffered: of a line that the disk did not take, nothing may come with the next one.
        file = self._file = self._file or io.FileIO(self._path, "a")
        with _alone(file):
            before = ""
            if os.fstat(file.fileno()).st_size != self._size:
                self._head, before = newest(self._path), "\n" if is_torn(self._path) else ""
            line = json.dumps(entry)
            head = _after(self._head, line)
            _write(file, f"{before}{line[:-1]}{_MARK}{head}{_END}\n".encode())
            self._head, self._size = head, os.fstat(file.fileno()).st_size
            if durably:
                os.fsync(file.fileno())

    def close(self) -> None:
        """Closes the file. Raises OSError where what was written cannot be kept."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class Verdict:
    """What looking through a chain came to.

    Attributes:
        lines: that are whole, up to the first broken one.
        torn: numbers of lines that were cut short, as by a crash; they say nothing, and the chain goes over them.
        broken: the number of the first line that does not fit, from 1; None if all do.
        head: the newest hash that fits.
    """

    lines: int
    torn: tuple[int, ...]
    broken: int | None
    head: str


def verify(path: Path) -> Verdict:
    """Looks through a whole file. Raises OSError if it cannot be read."""
    head, lines, torn = BEGINNING, 0, tuple[int, ...]()
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line, found = _parted(raw)
            if not found and not _is_entry(raw):
                torn += (number,)
            elif found != (expected := _after(head, line)):
                return Verdict(lines, torn, number, head)
            else:
                head, lines = expected, lines + 1
    return Verdict(lines, torn, None, head)


def newest(path: Path) -> str:
    """The hash of the newest line that has one, `BEGINNING` if none has. Raises OSError if it cannot be read."""
    if not path.is_file():
        return BEGINNING
    size = path.stat().st_size
    for begin in dict.fromkeys((max(size - _TAIL, 0), 0)):
        with path.open("rb") as file:
            file.seek(begin)
            lines = file.read().splitlines()[1 if begin else 0 :]  # the first of a part may be cut
        for raw in reversed(lines):
            if found := _parted(raw)[1]:
                return found
    return BEGINNING


@contextmanager
def _alone(file: io.FileIO) -> Iterator[None]:
    """No other process, and no other chain of this one, writes meanwhile."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _write(file: io.FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _after(head: str, line: str) -> str:
    return hashlib.sha256(f"{head}{line}".encode()).hexdigest()


def _parted(raw: bytes) -> tuple[str, str]:
    """A line without its hash, and its hash; "" for one that has none, or is not whole."""
    text = raw.decode(errors="replace").rstrip("\n")
    line, mark, end = text.rpartition(_MARK)
    found = end.removesuffix(_END)
    whole = bool(mark) and end.endswith(_END) and len(found) == len(BEGINNING) and _is_entry(raw)
    return (f"{line}}}", found) if whole else (text, "")


def _is_entry(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except ValueError:
        return False
