"""Rows of a search: its tables, the common rows of aligned tables, and the rows of every fold."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from sklearn.model_selection import KFold, StratifiedKFold
from torch import Tensor

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import Partition
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.files import write_kept
from colonnade.server.privacy import digest_of
from colonnade.server.training.context import check_labels
from colonnade.server.training.fusion.active import active_features
from colonnade.simulation.federation import find_rows

_T = TypeVar("_T")


def table_digests(config: Config, base: Path) -> dict[str, str]:
    """Digests of all tables as they are read: values, words, keys in their order, labels and weights.

    The keys name the tables in errors. A digest is a function of private rows: it stays in the search's folder.
    """
    labels = _labels(config, base)
    found, server = {"label table": digest_of(labels)}, config.server
    if server is not None and server.active is not None:
        with whose(SERVER):
            rows, ids = len(labels.values), labels.ids
            own = active_features(config.federation, server, server.active, base, rows, ids=ids)
        found[f"table of {SERVER}"] = own.fingerprint
    for name, party in config.parties.items():
        with whose(name):
            features = load_features(party.data, config.federation.party_index(name), base)
        found[f"table of {name}"] = features.fingerprint
    return found


@dataclass(frozen=True)
class HeldTables:
    """The tables of a search's results, by their digests."""

    config: Config
    base: Path
    digests: Mapping[str, str]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raises InputError if a table has changed; results since the last check are then void."""
        with self._lock:  # tables of one thread at a time in memory
            found = table_digests(self.config, self.base)
        if changed := [name for name, digest in self.digests.items() if found[name] != digest]:
            raise InputError(
                f"the {' and the '.join(changed)} changed while the command worked",
                hint="restore it and give the same command again; or choose another --out, or remove the folder",
            )


def align_once(tables: HeldTables, kept: Path) -> Path | None:
    """Finds the common rows once for all simulations, in the order of the server's rows; returns their file.

    Each alignment has a new order, and so other parts. Returns None if rows are matched by order.

    Args:
        kept: file of the rows, used if it belongs to these tables: row numbers mean other persons in other tables.
    """
    config = tables.config
    if config.federation.align == "none":
        return None
    of = {"of": json.dumps([config.federation.keys.model_dump(mode="json"), dict(tables.digests)], sort_keys=True)}
    if _about(kept) != of:
        rows = find_rows(config, tables.base)
        tables.check()
        order = rows[SERVER].argsort()
        write_kept(kept, save({name: own[order].contiguous() for name, own in rows.items()}, of), 0o600, in_new=True)
    return kept


def _about(kept: Path) -> Mapping[str, str] | None:
    try:
        with safe_open(kept, framework="pt") as file:
            found: Mapping[str, str] | None = file.metadata()
            return found
    except (OSError, SafetensorError):
        return None


def read_aligned(path: Path) -> Mapping[str, Tensor]:
    """Every member's rows, int64 (common,)."""
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError) as torn:
        raise InputError(f"{path} cannot be read: {torn}", hint="remove it: the rows are aligned again") from None


def parts_bytes(parts: Partition) -> bytes:
    """Serialises the row numbers of every part."""
    return save({name: getattr(parts, name).contiguous() for name in ("train", "validation", "test")})


def read_parts(path: Path) -> Partition:
    """Reads such a file."""
    try:
        return Partition(**load(path.read_bytes()))
    except (OSError, SafetensorError, TypeError) as torn:
        raise InputError(f"{path} cannot be read: {torn}", hint="remove it: it is written again") from None


@dataclass(frozen=True)
class Fold:
    """Rows that are held out together.

    Args:
        repeat, number: from 1.
        held: row numbers, int64 (m,), ascending, within the rows that take part.
    """

    repeat: int
    number: int
    held: Tensor


def pool_labels(config: Config, base: Path, aligned: Path | None) -> Tensor:
    """Labels of the rows that take part: all, or the common ones, without a source's own test rows."""
    labels = _labels(config, base)
    check_labels(labels, config.federation)
    if aligned is not None:
        return labels.values[read_aligned(aligned)[SERVER]]
    return labels.values[: len(labels.values) - labels.official_test]


def _labels(config: Config, base: Path) -> LabelColumn:
    if config.server is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    with whose(SERVER):
        return load_labels(config.server.labels, base, config.federation.task)


def folds_of(labels: Tensor, folds: int, repeats: int, seed: int, *, stratified: bool) -> Iterator[Fold]:
    """The folds, as scikit-learn's KFold or StratifiedKFold draws them; repeat r uses seed `seed` + r - 1.

    Args:
        labels: (rows,) classes, or (rows, targets) numbers.
        repeats: number of times that all rows are split.
        stratified: whether every fold has about the same share of every class.
    """
    rows = len(labels)
    if folds > rows:
        raise InputError(f"--folds {folds}: there are {rows} rows", hint="give fewer folds")
    if stratified:
        least = int(torch.bincount(labels).min())
        if least < folds:
            raise InputError(
                f"--folds {folds}: a class has {least} rows, and every fold needs one of each",
                hint="give fewer folds, or --no-stratified",
            )
    kind = StratifiedKFold if stratified else KFold
    for repeat in range(repeats):
        splitter = kind(folds, shuffle=True, random_state=seed + repeat)
        target = labels.numpy() if stratified else None
        for number, (_, held) in enumerate(splitter.split(np.zeros(rows), target), 1):
            yield Fold(repeat + 1, number, torch.from_numpy(np.sort(held)))
