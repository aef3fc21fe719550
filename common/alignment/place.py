"""The folder in which a member keeps its alignments."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.errors import EnvironmentFault, disk_faults
from colonnade.common.run.run_folder import RunFolder

VARIABLE = "COLONNADE_ALIGNMENTS"
"""Environment variable that names the folder of kept alignments; a configuration takes precedence."""

NAME = ".alignments"

_SHARED = 0o077

TEMPORARY = "temporary"
"""Marker file beside identities that were made for one start: their fingerprints identify no member."""


def lasting(identity: Path | None) -> bool:
    """True if a folder with key and certificate lasts beyond one start."""
    return identity is not None and not (identity.parent / TEMPORARY).exists()


def place_of(config: AlignmentsConfig, base: Path, out: Path, member: str) -> Path:
    """The folder of a member's kept alignments, which need not exist; arguments as in `Place` (keeping.py)."""
    if config.folder is not None:
        return base / config.folder / member
    if folder := os.environ.get(VARIABLE):
        return Path(folder) / member
    beside = _run(out).parent / NAME
    return (beside if _usable(beside) else out / NAME) / member


def make_private(folder: Path) -> None:
    """Makes a folder, and its parent, that only the owner can enter. Refuses links and folders of other users."""
    with disk_faults(f"{folder} cannot be made", _HINT):
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise EnvironmentFault(f"{folder} is a link, or belongs to another user", hint=_HINT)
    if found.st_mode & _SHARED:
        folder.chmod(0o700)


def _run(out: Path) -> Path:
    """The run's folder: the member's own, or for a party that `up` or `simulate` started, the one above."""
    above = out.parent.parent
    begun = any(path.exists() for path in (RunFolder(above).launch, RunFolder(above).simulated))
    return above if out.parent.name == "parties" and begun else out


def _usable(folder: Path) -> bool:
    """True if we can make the folder and no other user can have put files into it."""
    if folder.is_symlink():
        return False
    if folder.is_dir():
        found = folder.stat()
        return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK)
    return os.access(folder.parent, os.W_OK | os.X_OK)


_HINT = f"name another place: `alignments: {{folder: PATH}}`, or {VARIABLE}; `alignments: {{days: 0}}` keeps none"
