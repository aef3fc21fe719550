"""Ledger of the messages that left a party: the party's own record, for its auditors.

Its lines are a hash chain. A line ends in `"chain": H`, where H is SHA-256 over the hash of the line before and the
line without its own hash. With the newest hash noted elsewhere, any later change, removal or insertion up to it can be
detected. A rewrite of the whole file makes a consistent chain and is detected by the noted hash only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.errors import CheckpointError, disk_faults
from colonnade.common.messaging.message import Message, dtype_name, payload_bytes, schema, tensor_specs, tensors
from colonnade.common.run.files import open_own, sync
from colonnade.common.run.json_text import is_torn, parse_json, read_lines, unsealed
from colonnade.common.run.run_folder import PartyFolder

BEGINNING = "0" * 64  # placeholder for the hash before the first line

_MARK = ', "chain": "'
_END = '"}'
LOST = "restore it from a newer copy, or begin a new run, which spends epsilon anew"
_TAIL = 65_536  # bytes at a file's end that are searched first for its last complete line


class Chain:
    """An append-only file of chained lines, each written immediately.

    Several writers may share a file, each line under a lock: a writer that finds the file longer than it left it
    continues from its newest line. A line truncated by a crash or a full disk is terminated first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._head, self._size = BEGINNING, -1

    def append(self, entry: Mapping[str, Any], *, durably: bool = False) -> None:
        """Adds a line.

        Args:
            entry: its content, not empty.
            durably: True to sync to the disk before returning.

        Raises OSError if the write failed.
        """
        # Unbuffered: no part of a failed write may be flushed with the next line.
        file = self._file = self._file or io.FileIO(_opened(self._path), "a")
        with _alone(file):
            before = ""
            if os.fstat(file.fileno()).st_size != self._size:
                self._head, before = newest(self._path), "\n" if is_torn(self._path) else ""
            line = json.dumps(entry)
            head = _after(self._head, line)
            _write(file, f"{before}{line[:-1]}{_MARK}{head}{_END}\n".encode())
            self._head, self._size = head, os.fstat(file.fileno()).st_size
            if durably:
                sync(file.fileno())

    def close(self) -> None:
        """Closes the file. Raises OSError if written lines cannot be made durable."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class Verdict:
    """Result of verifying a chain.

    Attributes:
        lines: number of complete lines before the first broken one.
        torn: numbers of lines truncated by a crash; they carry nothing, and the chain skips them.
        broken: number, from 1, of the first line with a wrong hash; None if there is none.
        head: the newest valid hash.
    """

    lines: int
    torn: tuple[int, ...]
    broken: int | None
    head: str


def verify(path: Path) -> Verdict:
    """Verifies a whole file. Raises OSError if it cannot be read."""
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


def newest(path: Path, size: int | None = None) -> str:
    """The hash of the newest line that has one, `BEGINNING` if none has. Raises OSError if it cannot be read.

    Args:
        size: bytes of the file to look at; None for all.
    """
    if not path.is_file():
        return BEGINNING
    size = path.stat().st_size if size is None else size
    for begin in dict.fromkeys((max(size - _TAIL, 0), 0)):
        with path.open("rb") as file:
            file.seek(begin)
            lines = file.read(size - begin).splitlines()[1 if begin else 0 :]  # a part's first may be incomplete
        for raw in reversed(lines):
            if found := _parted(raw)[1]:
                return found
    return BEGINNING


def mark(path: Path) -> str:
    """Length and newest hash of a file as it is on the disk when this returns, for `refuse_shorter`. Raises OSError."""
    if not path.is_file():
        return f"0 {BEGINNING}"
    with io.FileIO(_opened(path), "a") as file, _alone(file):
        sync(file.fileno())
        return f"{os.fstat(file.fileno()).st_size} {newest(path)}"


def refuse_shorter(path: Path, before: str, *, lines: bool = True) -> None:
    """Refuses a file that has lost lines since `mark` gave `before`, or whose lines were altered.

    Skips initial lines without hashes, which earlier versions wrote.

    Args:
        lines: verifies the hash of every line; False for pages, which compare the length and the newest hash alone.

    Raises:
        CheckpointError: naming the file and, where it is known, the line.
    """
    try:
        size, head = int(before.split(maxsplit=1)[0]), before.split()[1]
        found = path.stat().st_size if path.is_file() else 0
    except (OSError, ValueError, IndexError):
        raise CheckpointError(f"{path} cannot be compared with the pin beside it", hint=LOST) from None
    if found < size:
        what = f"has {found} bytes" if path.is_file() else "is missing"
        raise CheckpointError(f"{path} {what}, and had {size} when this folder was last used", hint=LOST)
    if lines and found:
        _verify_lines(path)
    if size and newest(path, size) != head:
        raise CheckpointError(f"{path} is another file than when this folder was last used", hint=LOST)


def _verify_lines(path: Path) -> None:
    seen, chained = BEGINNING, False
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line, hashed = _parted(raw)
            if hashed:
                chained = True
                if hashed != (seen := _after(seen, line)):
                    raise CheckpointError(f"{path}, line {number}: its hash does not fit what is before it", hint=LOST)
            elif chained and _is_entry(raw):
                raise CheckpointError(f"{path}, line {number}: its hash is missing", hint=LOST)


def refuse_unpinned(path: Path) -> None:
    """Refuses a party's ledger that has lost lines since the pin beside it was written.

    Raises:
        CheckpointError: it has; or the pin was altered.
    """
    pin = PartyFolder(path.parent).pinned
    try:
        before = unsealed(pin.read_bytes()).get("ledger") if pin.is_file() else None
    except (OSError, ValueError):
        raise CheckpointError(
            f"{pin} is torn or was altered, and {path} cannot be compared with it", hint=LOST
        ) from None
    if before:  # which versions before 0.3 did not write
        refuse_shorter(path, str(before), lines=False)


@contextmanager
def _alone(file: io.FileIO) -> Iterator[None]:
    """Excludes other processes, and other chains of this process, while it writes."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: Path) -> int:
    return open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def _write(file: io.FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _after(head: str, line: str) -> str:
    return hashlib.sha256(f"{head}{line}".encode()).hexdigest()


def _parted(raw: bytes) -> tuple[str, str]:
    """A line without its hash, and its hash; "" if it has none or is incomplete."""
    text = raw.decode(errors="replace").rstrip("\n")
    line, mark, end = text.rpartition(_MARK)
    found = end.removesuffix(_END)
    whole = bool(mark) and end.endswith(_END) and len(found) == len(BEGINNING) and _is_entry(raw)
    return (f"{line}}}", found) if whole else (text, "")


def _is_entry(raw: bytes) -> bool:
    try:
        return isinstance(parse_json(raw), dict)
    except ValueError:
        return False


_ROWS = {"rows": 0, "coded": 0, "keys": 0, "lines": 1}  # dimensions that count rows, and how many more than these
_FAILURE = "Failure"
_SHORT = 64  # characters or numbers that are written out


class Ledger:
    """An append-only file of JSON lines, one per message, written before the message is sent.

    Every line carries a hash over all earlier ones (common/privacy/accounting/ledger.py). The file is not part of
    checkpoints and is never rolled back. Messages sent again after a rollback are recorded again, marked `repeat`.

    Args:
        path: the ledger's file; None for no file (tests).
        after: the restored round: messages of later rounds may be sent again.
    """

    def __init__(self, path: Path | None, after: int = 0) -> None:
        self._path = path
        self._chain = None if path is None else Chain(path)
        self._left = set() if path is None else _left_after(path, after)

    def charge(self, message: Message, to: str, mechanism: str, epsilon: float | None) -> None:
        """Records a message that is about to be sent.

        Args:
            mechanism: its protection, or "" if it is not a function of private rows.
            epsilon: spent so far, this message included; None without a guarantee.
        """
        if self._chain is None:
            return
        entry = _entry(message, to, mechanism, epsilon)
        if self._left and _key(entry) in self._left:
            entry["repeat"] = True
        with self._faults():
            self._chain.append(entry)

    def note(self, notice: object, to: str) -> None:
        """Records a control message before it is sent: it has no tensor, and at most the number of rows.

        Its line names the kind under `control`, so that readers of messages skip it. A notice that this party has
        failed is sent even if the disk refuses the line.

        Raises EnvironmentFault, as `charge`, for any other notice.
        """
        if self._chain is None:
            return
        kind = type(notice).__name__
        entry = {"time": round(time.time(), 6), "control": kind, "to": to, "about": _about(notice)}
        with contextlib.suppress(OSError) if kind == _FAILURE else self._faults():
            self._chain.append(entry)

    def _faults(self) -> contextlib.AbstractContextManager[None]:
        what, hint = f"the ledger {self._path} cannot be written", "make room on the disk, then resume"
        return disk_faults(what, hint, "; nothing leaves without it")

    def close(self) -> None:
        if self._chain is not None:
            with contextlib.suppress(OSError):  # a failed write was reported already
                self._chain.close()


def _entry(message: Message, to: str, mechanism: str, epsilon: float | None) -> dict[str, Any]:
    fields = tensors(message)
    scalars = {name: getattr(message, name) for name in schema(type(message)) if name not in fields and name != "round"}
    return {
        "time": round(time.time(), 6),
        "round": message.round,
        "kind": type(message).__name__,
        "to": to,
        **({"about": scalars} if scalars else {}),
        "fields": {name: [dtype_name(t.dtype), *t.shape] for name, t in fields.items()},
        "bytes": payload_bytes(message),
        "rows": _rows(message),
        "mechanism": mechanism,
        "epsilon": epsilon,
    }


def _about(notice: object) -> dict[str, Any]:
    """Content of a notice: numbers and short words; the size of anything longer."""
    said: dict[str, Any] = {}
    for field in dataclasses.fields(notice):  # type: ignore[arg-type]  # every notice is a dataclass
        value = getattr(notice, field.name)
        if value is None or (isinstance(value, bytes | Mapping | str | tuple) and not len(value)):
            continue
        long = isinstance(value, bytes | Mapping) or (isinstance(value, str | tuple) and len(value) > _SHORT)
        said[field.name] = {"size": len(value)} if long else value
    return said


def _rows(message: Message) -> int:
    """Number of rows in the message, coded ones included; 0 if no tensor has such a dimension."""
    named = [zip(spec.dims, getattr(message, name).shape, strict=True) for name, spec in tensor_specs(type(message))]
    return max((size - _ROWS[dim] for dims in named for dim, size in dims if dim in _ROWS and size), default=0)


def _key(entry: dict[str, Any]) -> str:
    """Identity of a release: round, kind, receiver and subject, not the time."""
    return json.dumps([entry.get(part) for part in ("round", "kind", "to", "about")])


def _left_after(path: Path, round: int) -> set[str]:
    rounds = ((entry, entry.get("round", 0)) for entry in read_lines(path))
    return {_key(entry) for entry, of in rounds if isinstance(of, int) and of > round}  # else it was altered
