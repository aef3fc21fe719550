"""JSON on the disk that may be torn or altered: files of lines that are appended, and records that a restart relies on.

Processes that write lines may be killed at any time. Alterations of a record are detected; with a witness, lost and
older records too. Light: every command imports this.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeGuard

from colonnade.common.errors import CheckpointError
from colonnade.common.run.files import open_own, write_durably

_parse = json.JSONDecoder().raw_decode
"""Without what `json.loads` does before and after, which takes longer than parsing a line of a ledger."""


def open_to_append(path: Path) -> TextIO:
    """Opens a file to append lines, each written at once. Ends a truncated last line first."""
    torn = is_torn(path)
    file = os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), "a", buffering=1, encoding="utf-8")
    if torn:
        file.write("\n")
    return file


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every complete line; none if the file is missing."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        try:
            entry, end = _parse(text := line.decode().strip())
        except (ValueError, RecursionError):
            continue  # its writer was killed
        if end != len(text):
            continue
        if isinstance(entry, dict):
            yield entry


def is_torn(path: Path) -> bool:
    return path.is_file() and _last_byte(path) not in (b"", b"\n")


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        return file.read(1)


_MOST = (1 << 63) - 1


def parse_json(text: bytes | str, *, once: bool = False) -> Any:
    """`json.loads`, with ValueError also for a text that is nested too deeply; with `once`, for a key given twice."""
    try:
        return json.loads(text, object_pairs_hook=_once if once else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def whole(value: object, most: int = _MOST) -> int:
    """Returns a value if it is a whole number from 0 to `most`, else raises ValueError, also for a Boolean."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number from 0 to {most}")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """True for a number that a float holds: not for NaN, an infinity or an integer of hundreds of digits."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


_CHECKSUM = "checksum"


def sealed(content: Mapping[str, Any]) -> bytes:
    """A record, not empty, as a file's content: JSON with a checksum over the rest."""
    text = json.dumps(content)
    return f'{text[:-1]}, "{_CHECKSUM}": "{_hash(text.encode())}"}}'.encode()


def unsealed(raw: bytes) -> dict[str, Any]:
    """The record in a file's content. Versions before 0.3 wrote no checksum: their records are accepted unchecked.

    Raises ValueError if it is torn, was altered, or is no record.
    """
    found = parse_json(raw)
    if not isinstance(found, dict):
        raise ValueError("no record")
    checksum = found.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _hash(json.dumps(found).encode()):
        raise ValueError("it was altered")
    return found


@dataclass(frozen=True)
class Witness:
    """Hashes of records, in a file beside them, which show that a record is lost, altered or an older copy.

    A record without a hash, of a version before 0.3, is accepted unchecked until it is written again.
    """

    path: Path

    def read(self, record: Path, hint: str) -> bytes | None:
        """Content of a record; None if it was never written.

        Raises:
            CheckpointError: it is not as it was last written; or the witness itself was altered.
            OSError: it cannot be read.
        """
        content = record.read_bytes() if record.exists() else None
        known = self._known().get(record.name)
        if known is None or _hash(content) in known:
            return content
        what = (
            "is missing"
            if content is None
            else f"is torn or was altered, or is older than {self.path.name} beside it says"
        )
        raise CheckpointError(f"{record} {what}", hint=hint)

    def write(self, record: Path, content: bytes, mode: int = 0o666) -> None:
        """Replaces a record; it is on the disk when this returns. A crash leaves one that `read` accepts."""
        known, new = self._known(), _hash(content)
        before = _hash(record.read_bytes() if record.exists() else None)
        self._note({**known, record.name: [before, new]})
        write_durably(record, content, mode)
        self._note({**known, record.name: [new]})

    def _note(self, known: Mapping[str, list[str]]) -> None:
        write_durably(self.path, sealed(known), 0o600)

    def _known(self) -> dict[str, list[str]]:
        if not self.path.exists():
            return {}
        try:
            return {
                str(name): [str(one) for one in hashes] for name, hashes in unsealed(self.path.read_bytes()).items()
            }
        except (OSError, ValueError, TypeError):
            raise CheckpointError(
                f"{self.path} is torn or was altered", hint="restore it together with the records beside it"
            ) from None


def _hash(content: bytes | None) -> str:
    """SHA-256 of a content; "" for a missing file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()
