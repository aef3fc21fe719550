"""Locks on run folders: one folder a run, locked by one process, removed if it stays empty.

The layout of the folder is in common/run/run_folder.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.run.files import narrow, open_own, refuse_foreign, refuse_path
from colonnade.common.run.run_folder import MemberFolder
from colonnade.reports.console.screen import err
from colonnade.reports.words import counted

_LOCK = ".lock"
_PATIENCE = 0.5  # seconds to acquire the lock: `is_held` takes it for a moment


@contextmanager
def locked_folder(wanted: Path | None, name: str, resume: Path | None = None, lock_name: str = _LOCK) -> Iterator[Path]:
    """Makes and locks a folder; removes the folders that it made if they are left empty.

    Args:
        wanted: `--out`; None chooses runs/NAME-TIME.
        resume: the folder of a run to resume, instead.
        lock_name: a launcher and its server share one folder, each with its own lock.

    Raises:
        EnvironmentFault: it holds a run already, cannot be made, belongs to another user, or another process works in
            it.
        InputError: there is no run to resume, or this version does not read it.
    """
    if resume is not None:
        if wanted is not None:
            raise InputError("--out and --resume: a run goes on in its own folder", hint="leave --out away")
        folder = resume.resolve()
        held = MemberFolder(folder)
        if not held.begun:
            raise InputError(f"{folder} holds no run", hint="give --resume the folder that the run was begun in")
        held.refuse_unreadable()
    else:
        folder = (wanted or Path("runs") / f"{refuse_path(name)}-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        if resume is None and wanted is None:
            made[:1] = [folder := _make_new(folder)]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise _unwritable(folder, failed) from None
    refuse_foreign(folder)
    with hold(folder / lock_name):
        if resume is not None:
            _narrow(folder)
        elif MemberFolder(folder).begun:  # asked under the lock: its holder may have begun one
            raise EnvironmentFault(
                f"{folder} holds a run already", hint="go on with it by --resume, choose another --out, or remove it"
            )
        elif not made and len(list(folder.iterdir())) == 1:  # an existing folder that holds only the lock
            narrow(folder)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # not empty: there was a run
                if not MemberFolder(folder).begun:
                    (folder / lock_name).unlink()
                for path in made:
                    path.rmdir()


@contextmanager
def hold(lock: Path, hint: str = "end it first, or choose another --out") -> Iterator[None]:
    """Holds a lock file, in which it writes this process and host.

    Its holder may remove it: a waiting process then makes a new one. A file system without locks is refused. Raises
    EnvironmentFault if another process holds it, or it cannot be written or locked.
    """
    file = FileLock(lock, timeout=_PATIENCE, mode=0o600, fallback_to_soft=False)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.close(open_own(lock, os.O_RDWR))  # a link or another user's file is no lock of ours
        file.acquire()
        lock.write_text(f"{os.getpid()}\n{platform.node()}\n", encoding="utf-8")
    except Timeout:
        who = ""
        with contextlib.suppress(OSError):
            who = " on ".join(lock.read_text(encoding="utf-8", errors="replace").split())
        raise EnvironmentFault(f"another process ({who or 'unknown'}) works in {lock.parent}", hint=hint) from None
    except OSError as failed:
        file.release()
        raise _unwritable(lock, failed) from None
    try:
        yield
    finally:
        file.release()


def _unwritable(path: Path, failed: OSError) -> EnvironmentFault:
    hint = "choose another --out, or make it writable"
    return EnvironmentFault(f"{path} cannot be written: {failed.strerror}", hint=hint)


def remove_new(folder: Path, there: Collection[Path]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):  # files before their folders
        if path not in there:
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _make_new(folder: Path) -> Path:
    """Makes a new folder: a second run within one second gets FOLDER-2. Raises OSError."""
    for number in count(1):
        path = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError  # `count` is infinite


def _narrow(folder: Path) -> None:
    narrowed, foreign = narrow(folder)
    if narrowed:
        said = f"{folder}: others could read or change {narrowed} of its files and folders; they no longer can"
        err.say(said, "yellow")
    if foreign:
        said = f"{folder}: {counted(foreign, 'file')} of another user can be read or changed by others"
        err.say(said, "yellow")


def is_held(folder: Path) -> bool:
    """True if a process holds the lock of a folder, in any process namespace."""
    try:
        with (folder / _LOCK).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
