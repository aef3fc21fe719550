"""Files of keys, certificates and lists: written atomically, keys readable by their owner only.

An identity is refused if another user can change one of its files or what its folder holds. Root is trusted.
"""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import stat
from pathlib import Path

from colonnade.common.errors import IdentityError
from colonnade.common.run.files import publish

PRIVATE = 0o600

PUBLIC = 0o644

_AGAIN = "if others use this machine, make new keys and get ca.pem again"


def write(path: Path, data: bytes, *, mode: int = PUBLIC, overwrite: bool = False, hint: str = "") -> None:
    """Writes `data` to `path` atomically: neither a reader nor a crash finds an incomplete file.

    Raises:
        IdentityError: the file exists and `overwrite` is off (`hint` names the remedy), or the folder is not writable.
    """
    if not overwrite and path.exists():  # before the draft, so that a refused call writes nothing
        raise IdentityError(f"{path} exists already and is not overwritten", hint=hint)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        create(draft, data, mode=mode, durable=True)
        if overwrite:
            draft.replace(path)
        else:
            path.hardlink_to(draft)  # unlike a rename, refuses when there is a file already
    except FileExistsError as error:
        raise IdentityError(f"{path} exists already and is not overwritten", hint=hint) from error
    except OSError as error:
        raise _unusable("write", path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def create(path: Path, data: bytes, *, mode: int, durable: bool = False) -> None:
    """Writes a new file; `durable` waits until it is on the disk. Raises OSError if the file exists."""
    # The mode is set at creation: with a later chmod others could read the file in between.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        if mode == PUBLIC:  # certificates, requests and lists are for others to read
            publish(stream.fileno(), mode)
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())


def make_folder(path: Path) -> Path:
    """Creates a folder that only its owner can enter; leaves an existing one unchanged."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable("make", path, error) from error
    return path


def refuse_shared(folder: Path, remedy: str = _AGAIN) -> None:
    """Raises IdentityError if there is such a folder and another user can change what it holds."""
    if folder.is_dir():
        _check_own(folder, folder.stat(), remedy)


def read(path: Path, *, private: bool = False, own: bool = False, hint: str = "", remedy: str = _AGAIN) -> bytes:
    """The bytes of a file.

    Args:
        private: refuses a file that another user can read or change.
        own: refuses a file that another user can change.
        hint: how to get the file.
        remedy: what to do about a file that another user may have changed.
    """
    try:
        with path.open("rb") as stream:
            if private or own:
                for folder in dict.fromkeys((path.parent, path.resolve().parent)):  # a mounted file is a link
                    refuse_shared(folder, remedy)
            if private:
                _check_private(path, os.fstat(stream.fileno()))
            if private or own:
                _check_own(path, os.fstat(stream.fileno()), remedy)
            return stream.read()
    except FileNotFoundError as error:
        raise IdentityError(f"there is no file {path}", hint=hint) from error
    except OSError as error:
        raise _unusable("read", path, error) from error


def _check_private(path: Path, status: os.stat_result) -> None:
    if os.name != "posix":
        return
    # A secret mounted by an orchestrator belongs to root and is readable through our group alone,
    # so the group may read it; a file of our own must be readable by us alone.
    mounted = status.st_uid == 0 and os.geteuid() != 0
    if status.st_mode & (0o037 if mounted else 0o077):
        mode = stat.S_IMODE(status.st_mode)
        raise IdentityError(
            f"{path} holds a secret, and can be read or changed by others (mode {mode:04o})",
            hint=f"run: chmod 600 {path}; if others use this machine, make a new one",
        )


def _check_own(path: Path, status: os.stat_result, again: str) -> None:
    if os.name != "posix":
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid()):
        raise IdentityError(
            f"{path} belongs to another user, who can change it",
            hint=f"run as root: chown {os.geteuid()} {path}; {again}",
        )
    # In a folder such as /tmp everyone changes only their own files, and the owner of each of ours is checked.
    kept = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX
    if not kept and not _mounted_to_read(path, status) and mode & (0o002 if _is_own_group(status.st_gid) else 0o022):
        raise IdentityError(
            f"{path} can be changed by others (mode {mode:04o})", hint=f"run: chmod go-w {path}; {again}"
        )


def _mounted_to_read(path: Path, status: os.stat_result) -> bool:
    """True of what an orchestrator mounts: root's, on a file system that nobody here can write to."""
    return status.st_uid == 0 and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_own_group(group: int) -> bool:
    """True of the group that a user has alone and by the same name, as many systems make one with each user."""
    try:
        user, found = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user and set(found.gr_mem) <= {user}


def _unusable(verb: str, path: Path, error: OSError) -> IdentityError:
    return IdentityError(f"cannot {verb} {path}: {error.strerror or error}", hint="check the path and who may use it")
