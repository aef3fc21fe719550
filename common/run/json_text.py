"""Append-only JSON lines files, written by processes that may be killed at any time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, TypeGuard

from colonnade.common.run.own_files import open_own

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


def parse_json(text: bytes | str) -> Any:
    """`json.loads`, with ValueError also for a text that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(value: object, most: int = _MOST) -> int:
    """Returns a value if it is a whole number from 0 to `most`, else raises ValueError, also for a truth value."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number from 0 to {most}")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """True for a number that a float holds: not for NaN, an infinity or an integer of hundreds of digits."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
