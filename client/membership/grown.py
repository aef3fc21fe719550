"""Append-only records of a party: the pin stores the length of each, so that a lost or older copy is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from colonnade.client.privacy.kept_tensor import read_any
from colonnade.client.privacy.own_codes import DRAWS
from colonnade.client.privacy.row_places import PLACES
from colonnade.common.alignment.kept.foreign_keys import NAME as FOREIGN
from colonnade.common.alignment.kept.foreign_keys import ForeignKeys
from colonnade.common.checkpointing.run_cache import RunCache
from colonnade.common.errors import CheckpointError
from colonnade.common.runtime.run_folder import PartyFolder
from colonnade.common.secure_aggregation.summed_sets import NAME as SUMS
from colonnade.common.secure_aggregation.summed_sets import times_written


def grown(folder: PartyFolder) -> dict[str, int]:
    """Length of each record that exists, by path in the folder. Raises CheckpointError if one is damaged."""
    return {
        path.relative_to(folder.path).as_posix(): found for path, count in _counts(folder) if (found := count(path))
    }


def refuse_older(folder: PartyFolder, before: dict[str, int]) -> None:
    """Raises CheckpointError if a record is shorter than `before` says, or damaged."""
    now = grown(folder)
    for name, count in before.items():
        if now.get(name, 0) < count:
            path = folder.path / name
            what = "is older than the pin beside it" if name in now else "is missing"
            raise CheckpointError(
                f"{path} {what}: it records what this party has given already",
                hint="restore it from a newer copy, or begin a new run in another folder",
            )


def _counts(folder: PartyFolder) -> Iterator[tuple[Path, Callable[[Path], int]]]:
    yield folder.run_cache / f"{SUMS}.record", lambda path: times_written(RunCache(path.parent))
    for cache in (folder.run_cache, folder.prediction_cache):
        yield cache / FOREIGN, lambda path: ForeignKeys(path.parent.name, path=path).counted
    yield folder.codes / PLACES, lambda path: len(read_any(path)) if path.exists() else 0
    for draws in DRAWS:
        yield folder.codes / draws, lambda path: int(read_any(path).any(1).sum()) if path.exists() else 0
