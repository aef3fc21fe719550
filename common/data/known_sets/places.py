"""Search path for files: next to the configuration, in $COLONNADE_DATA, in the download cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from colonnade.common.data.known_sets.catalogue import KNOWN, DataSet
from colonnade.common.errors import DataError

VARIABLE = "COLONNADE_DATA"


def cache() -> Path:
    """The user's cache folder for downloads; of a user without a home, as in a container, one for temporary files."""
    try:
        return Path(platformdirs.user_cache_dir("colonnade"))
    except (RuntimeError, KeyError):
        return Path(tempfile.gettempdir()) / f"colonnade-{os.getuid()}"


def find(name: str, base: Path, fits: Callable[[Path], bool], what: str) -> Path:
    """The first place that fits: `base`/name, then $COLONNADE_DATA/name, then cache/name.

    Args:
        name: a path, or the name of a known set, which is also its folder's name.
        what: description of the wanted data, for the DataError if nothing fits.
    """
    tried = []
    for path in _candidates(_at_home(name), base):
        try:
            if fits(path):
                return path
        except PermissionError:
            hint = "run this as a user with permission to open the folder"
            raise DataError(f"{path} cannot be read: Permission denied", hint=hint) from None
        tried.append(str(path))
    if found := next((said for path in tried if (said := _instead(Path(path)))), ""):
        raise DataError(f"{found}, and no {what}", hint=_hint(name))
    raise DataError(f"no {what} at {' or '.join(tried)}", hint=_hint(name))


def _at_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise DataError(f"{name}: this user has no home folder", hint="write the whole path, or set HOME") from None


def find_file(name: str, base: Path, what: str = "file") -> Path:
    """The first place with a readable file that is not empty. Raises DataError like `find`."""
    path = find(name, base, Path.is_file, what)
    refuse_unusable(path)
    return path


def refuse_unusable(path: Path) -> None:
    """Raises DataError if a path is a folder, is empty or cannot be read."""
    if said := _instead(path):
        raise DataError(said, hint="name a file")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        hint = "run this as a user with permission to read it" if isinstance(error, PermissionError) else ""
        raise DataError(f"{path} cannot be read: {error.strerror}", hint=hint or "correct the path") from None
    if empty:
        raise DataError(f"{path} is empty", hint="write it again, or name another file")


def _instead(path: Path) -> str:
    """Describes a path that should be a file and is something else; "" for a file or a missing path."""
    if path.is_dir():
        return f"{path} is a folder"
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {path.readlink()}, which is not there"
    return "" if path.is_file() or not path.exists() else f"{path} is no plain file"


def _candidates(name: Path, base: Path) -> Iterator[Path]:
    yield base / name
    if not name.is_absolute():
        yield from (root / name for root in _roots())


def _roots() -> Iterator[Path]:
    if root := os.environ.get(VARIABLE):
        yield Path(root)
    if not (own := cache()).exists() or own.stat().st_uid == os.getuid():  # a temporary folder may be another user's
        yield own


def _hint(name: str) -> str:
    if name not in KNOWN:
        return f"correct the path, or set {VARIABLE} to the folder that holds {name}"
    get = KNOWN[name].by_hand or f"run `colonnade datasets fetch {name}`"
    return f"{get}, or set {VARIABLE} to the folder that holds {name}/"


@dataclass(frozen=True)
class Presence:
    """The folder that holds a set, and the number of its files present."""

    folder: Path
    files: int


def presence(name: str, data_set: DataSet) -> Presence | None:
    """Location of a set: $COLONNADE_DATA or the cache, whichever holds more of its files."""
    found = [Presence(root / name, sum(_has(root / name, file.stem) for file in data_set.files)) for root in _roots()]
    best = max(found, key=lambda place: place.files)
    return best if best.files else None


def _has(folder: Path, stem: str) -> bool:
    return any((folder / f"{stem}{packed}").is_file() for packed in ("", ".gz", ".xz"))
