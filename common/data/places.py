"""Where files are looked for: beside the configuration, in $COLONNADE_DATA, in the download cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from common.data.catalogue import KNOWN, DataSet
from common.errors import DataError

VARIABLE = "COLONNADE_DATA"


def cache() -> Path:
    """The user's cache folder, where downloads go."""
    return Path(platformdirs.user_cache_dir("colonnade"))


def find(name: str, base: Path, fits: Callable[[Path], bool], what: str) -> Path:
    """The first place that fits: `base`/name, then $COLONNADE_DATA/name, then cache/name.

    Args:
        name: a path, or the name of a known set, whose folder is called so.
        base: the folder that a relative path is relative to.
        fits: whether what is wanted lies at a path.
        what: what is wanted, for the message.

    Raises:
        DataError: nothing fits; says what was looked for where, and how to get it.
    """
    tried = []
    for path in _candidates(Path(name).expanduser(), base):
        if fits(path):
            return path
        tried.append(str(path))
    raise DataError(f"no {what} at {' or '.join(tried)}", hint=_hint(name))


def _candidates(name: Path, base: Path) -> Iterator[Path]:
    yield base / name
    if not name.is_absolute():
        yield from (root / name for root in _roots())


def _roots() -> Iterator[Path]:
    if root := os.environ.get(VARIABLE):
        yield Path(root)
    yield cache()


def _hint(name: str) -> str:
    if name not in KNOWN:
        return f"correct the path, or set {VARIABLE} to the folder that holds {name}"
    get = KNOWN[name].by_hand or f"run `colonnade datasets fetch {name}`"
    return f"{get}, or set {VARIABLE} to the folder that holds {name}/"


@dataclass(frozen=True)
class Presence:
    """The folder that holds a set, and how many of its files are there."""

    folder: Path
    files: int


def presence(name: str, data_set: DataSet) -> Presence | None:
    """Where a set lies now: in $COLONNADE_DATA or the cache, whichever has more of its files."""
    found = [Presence(root / name, sum(_has(root / name, file.stem) for file in data_set.files)) for root in _roots()]
    best = max(found, key=lambda place: place.files)
    return best if best.files else None


def _has(folder: Path, stem: str) -> bool:
    return any((folder / f"{stem}{packed}").is_file() for packed in ("", ".gz", ".xz"))
