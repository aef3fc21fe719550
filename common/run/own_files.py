"""Files and folders of a member on a machine that others use: written only where they are the member's own.

In a folder that another user can write to, a link under the name of one of our files redirects a write to its target,
and a file of that user shows or changes what we write. Light: every command imports this.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from colonnade.common.errors import EnvironmentFault, InputError

_ROOT = 0


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens a file to write; the caller must close the descriptor.

    Args:
        flags: of `os.open`. With O_TRUNC a file is emptied once it is known to be ours.
        mode: of a new file, before the process's umask.

    Raises:
        OSError: the system refuses it; or it is a link, no plain file, of another user, or has a second name.
    """
    try:
        file = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as failed:
        if failed.errno in (errno.ELOOP, errno.ENXIO):
            said = "it is a link" if failed.errno == errno.ELOOP else "it is no plain file"
            raise OSError(failed.errno, f"{said}, and is not written to") from None
        raise
    try:
        found = os.fstat(file)
        if said := _objection(found):
            raise OSError(errno.EPERM, f"{said}, and is not written to")
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def shorten_own(path: Path, size: int) -> None:
    """Truncates a file. Raises OSError as `open_own`."""
    file = open_own(path, os.O_WRONLY)
    try:
        os.ftruncate(file, size)
    finally:
        os.close(file)


def refuse_foreign(folder: Path) -> None:
    """Refuses a run's folder that another user owns, or in which another user has put something.

    What root owns is accepted: it is the root of a mounted volume, or an administrator's.
    """
    ours = {os.geteuid(), _ROOT}
    for path, found in _walk(folder):
        if found.st_uid not in ours:
            what = "belongs" if path == folder else f"holds {path.relative_to(folder)}, which belongs"
            raise EnvironmentFault(
                f"{folder} {what} to another user ({found.st_uid}), who could change the run",
                hint=f"choose another --out; or, if all of it is yours, run: chown -R {os.geteuid()} {folder}",
            )


def refuse_path(name: str) -> str:
    """Returns a name that is about to be joined to a folder's path; refuses one that would lead elsewhere."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise InputError(f"{name[:60]!r} is no name in a folder", hint="use letters, digits, ., _ and -")
    return name


def _objection(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is no plain file"
    if found.st_uid != os.geteuid():
        return f"it belongs to another user ({found.st_uid})"
    return f"it has {found.st_nlink} names (hard links)" if found.st_nlink > 1 else ""


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The folder and all below it with their own status; links are not followed, vanished entries are left out."""
    left = [folder]
    while left:
        path = left.pop()
        try:
            found = path.lstat()
            yield path, found
            if stat.S_ISDIR(found.st_mode):
                left += path.iterdir()
        except (FileNotFoundError, PermissionError):  # gone meanwhile, or ours without permission
            continue
