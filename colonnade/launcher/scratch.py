"""Temporary folders, mainly for throw-away keys, and the removal of stale ones.

Each holds a lock that ends with its process. A folder whose lock can be acquired belongs to a process that was killed:
the next command that makes such a folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade.common.alignment.place import TEMPORARY
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.names import SERVER

_PREFIX = "colonnade-"
_LOCK = ".lock"


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder that only its owner can enter; removed at the end."""
    remove_stale(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder, partial = Path(name), Path(name) / ".lock.partial"
        with partial.open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            partial.rename(folder / _LOCK)  # it is locked before it is visible
            yield folder


def temporary_identities(folder: Path, names: Sequence[str], tree: dict[str, Any]) -> None:
    """Makes keys and certificates for one start, marks them as such, and names them in a dumped configuration."""
    pins = make_federation(folder, names)
    (folder / TEMPORARY).touch()
    tree["federation"] |= {"server": pins.pop(SERVER), "parties": pins}
    tree["server"]["identity"] = str(folder / SERVER)
    for name in names:
        tree["parties"][name]["identity"] = str(folder / name)


def remove_stale(place: Path) -> None:
    """Removes our folders whose processes have ended. Leaves links and other users' folders alone."""
    with contextlib.suppress(OSError):
        for found in list(os.scandir(place)):
            if found.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):  # a link, another user's, or already removed
                    _remove_if_stale(found.path)


def _remove_if_stale(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _ours(os.fstat(folder), stat.S_ISDIR):
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            if _ours(os.fstat(lock), stat.S_ISREG):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError while its process lives
                _empty(folder)
                Path(path).rmdir()
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _ours(found: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """True if it is of the kind, owned by our user, and not writable by others."""
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        elif name != _LOCK:
            os.unlink(name, dir_fd=folder)
    os.unlink(_LOCK, dir_fd=folder)  # last: if we are killed earlier, another command finishes
