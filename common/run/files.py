"""Files and folders of a member on a machine that others use: written atomically, and only where they are its own.

In a folder that another user can write to, a link under the name of one of our files redirects a write to its target,
and a file of that user shows or changes what we write. New files are readable by the owner alone, unless published
explicitly. Light: every command imports this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from colonnade.common.errors import EnvironmentFault, InputError, disk_faults

_WAITS = ContextVar("waits for the disk", default=True)


def sync(file: int) -> None:
    """Returns when a file's content, or a folder's names, would outlive a loss of power; in `rehearsal` at once."""
    if _WAITS.get():
        os.fsync(file)


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """Makes `sync` return at once in the block, for files that need not survive a loss of power."""
    before = _WAITS.set(False)
    try:
        yield
    finally:
        _WAITS.reset(before)


def state_of(found: os.stat_result) -> tuple[int, ...]:
    """A value that differs once the file was replaced or written to; a modification time alone can be reset."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextlib.contextmanager
def durable_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that gets its name atomically and durably when the block ends; its folder must exist.

    If the block fails, or the disk refuses it (OSError), no partial file remains. `mode` has the permissions, before
    the process's umask.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b") as file:
            yield file
            file.flush()
            sync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        sync(folder)  # the new name too
    finally:
        os.close(folder)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    with durable_file(path, mode) as file:
        file.write(content)


def write_kept(path: Path, content: bytes, mode: int = 0o666, *, in_new: bool = False) -> None:
    """`durable_file` for a file that a run depends on; `in_new` creates a missing folder. Raises EnvironmentFault."""
    with disk_faults(f"{path} cannot be written", "choose another --out, or make room"):
        if in_new:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content, mode)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Serialises processes that write the same file of a folder: one writes and the others wait."""
    with disk_faults(f"{folder} cannot be opened", "allow it"):
        held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


_ROOT = 0


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens a file to write; the caller must close the descriptor.

    Args:
        flags: as for `os.open`; with O_TRUNC a file is emptied once it is known to be ours.
        mode: permissions of a new file, before the process's umask.

    Raises OSError if the system refuses it, or if it is a link, no plain file, of another user, or has a second name.
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

    Root's files are accepted: a mounted volume's root, or an administrator's.
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
    """`keep_private` during a block: a library restores its process's umask.

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
