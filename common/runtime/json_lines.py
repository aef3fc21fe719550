"""Files of JSON lines that are only ever added to, by processes that may be killed at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


def open_to_append(path: Path) -> TextIO:
    """Opens a file for more lines, each written at once. A line that was cut short is closed first."""
    torn = is_torn(path)
    file = path.open("a", buffering=1)
    if torn:
        file.write("\n")
    return file


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line; nothing if there is no such file."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # its writer was killed
        if isinstance(entry, dict):
            yield entry


def is_torn(path: Path) -> bool:
    """Whether the last line was cut short."""
    return path.is_file() and _last_byte(path) not in (b"", b"\n")


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        return file.read(1)
