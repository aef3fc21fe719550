"""Atomic, durable file writes. Light: every command imports this."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from colonnade.common.errors import EnvironmentFault


@contextlib.contextmanager
def durable_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that has its name, atomically and even if the power fails, once the block ends; its folder must exist.

    If the block fails, or the disk refuses it (OSError), no partial file remains. `mode` has the permissions, before
    the process's umask.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes a whole `durable_file`."""
    with durable_file(path, mode) as file:
        file.write(content)


def write_kept(path: Path, content: bytes, mode: int = 0o666, *, in_new: bool = False) -> None:
    """The same for a file that a run depends on; `in_new` creates a missing folder. Raises EnvironmentFault."""
    try:
        if in_new:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content, mode)
    except OSError as failed:
        raise EnvironmentFault(
            f"{path} cannot be written: {failed.strerror}", hint="choose another --out, or make room"
        ) from failed


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Serialises processes that write the same file of a folder: one writes and the others wait."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError as failed:
        raise EnvironmentFault(f"{folder} cannot be opened: {failed.strerror}", hint="allow it") from failed
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
