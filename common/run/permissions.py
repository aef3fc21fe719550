"""Permissions of written files: readable by the owner alone, unless published explicitly."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from colonnade.common.errors import InputError

VARIABLE = "COLONNADE_UMASK"

_PRIVATE = 0o077
_outside: int | None = None  # the process's umask at start
_before: list[int | None] = []  # umask and `_outside` before the first open call; then one entry per call
_lock = threading.Lock()


def keep_private() -> None:
    """Removes all rights of group and others from files that this process and its children create from now on.

    The environment may set another umask, for files that another user or a group must read.
    """
    global _outside  # noqa: PLW0603  # a umask belongs to the process
    before = os.umask(_wanted())
    _outside = before if _outside is None else _outside


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """The same during a call: a library leaves the umask of its process as it was.

    The umask belongs to the process: of calls that overlap, in threads, the first sets it and the last restores it.
    """
    global _outside  # noqa: PLW0603
    with _lock:
        if not _before:
            _before.extend((os.umask(_wanted()), _outside))
            _outside = _before[0] if _outside is None else _outside
        _before.append(None)
    try:
        yield
    finally:
        with _lock:
            _before.pop()
            if len(_before) == 2:
                mask, _outside = _before
                _before.clear()
                os.umask(mask or 0)


def publish(file: int, mode: int) -> None:
    """Restores on an open file the rights that `keep_private` removed, within the process's umask at start."""
    if _outside is not None:
        os.fchmod(file, mode & ~_outside)


def narrow(folder: Path) -> tuple[int, int]:
    """Removes from a folder and its content the rights that new files would not have. Links are not followed.

    Folders that several users share (the sticky bit) are left as they are.

    Returns:
        Number of files and folders narrowed, and number of files of other users that others can read.
    """
    mask = os.umask(_PRIVATE)
    os.umask(mask)
    narrowed = foreign = 0
    for _, _, names, here in os.fwalk(folder):
        found = os.fstat(here)
        if found.st_mode & stat.S_ISVTX:
            continue
        narrowed += _narrow(here, found, mask)
        for name in names:
            with contextlib.suppress(OSError):  # a link, or gone meanwhile
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
                try:
                    found = os.fstat(file)
                    narrowed += _narrow(file, found, mask)
                    foreign += found.st_uid != os.geteuid() and bool(found.st_mode & mask)
                finally:
                    os.close(file)
    return narrowed, foreign


def _narrow(file: int, found: os.stat_result, mask: int) -> bool:
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid() or not mode & mask:
        return False
    os.fchmod(file, mode & ~mask)
    return True


def _wanted() -> int:
    text = os.environ.get(VARIABLE)
    if not text:
        return _PRIVATE
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= _PRIVATE:
        hint = "for example 077, which is the default: the owner alone; or 027: the group may read"
        raise InputError(f"{VARIABLE} = {text}: expected a umask of 000 to 077", hint=hint)
    return mask
