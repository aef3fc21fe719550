"""Output files and folders of a command."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from colonnade.common.errors import EnvironmentFault, InputError, disk_faults
from colonnade.common.run.files import write_durably


def make_folder(folder: Path) -> None:
    with disk_faults(f"{folder} cannot be made", "choose another --out"):
        folder.mkdir(parents=True, exist_ok=True)


def refuse_unwritable(folder: Path) -> None:
    """Fails early, before hours of computing whose results could not be written."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{folder} cannot be written to", hint="choose another --out")


def output_file(out: Path | None, default: Path) -> Path:
    """The absolute path of a file that can be written, in a folder that is made if it is missing."""
    path = (out or default).resolve()
    make_folder(path.parent)
    refuse_unwritable_file(path)
    return path


def refuse_unwritable_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"--out {path}: expected a file, this is a folder", hint="name a file in it")
    refuse_unwritable(path.resolve().parent)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes a file atomically."""
    with disk_faults(f"{path} cannot be written", "choose another --out"):
        write_durably(path, content, mode)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
