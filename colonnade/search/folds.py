"""Rows of a search: the common rows of aligned tables, and the rows of every fold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from sklearn.model_selection import KFold, StratifiedKFold
from torch import Tensor

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.rows import Partition
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.files import write_kept
from colonnade.server.training.context import check_labels
from colonnade.simulation.federation import find_rows

_T = TypeVar("_T")


def align_once(config: Config, base: Path, kept: Path) -> Path | None:
    """Finds the common rows once for all simulations, in the order of the server's rows; returns their file.

    Each alignment has a new order, and another order gives other parts. Returns None if rows are matched by order.

    Args:
        base: folder that paths in the configuration are relative to.
        kept: file of the rows, which is read if it exists.
    """
    if config.federation.align == "none":
        return None
    if not kept.exists():
        rows = find_rows(config, base)
        order = rows[SERVER].argsort()
        write_kept(kept, save({name: own[order].contiguous() for name, own in rows.items()}), 0o600)
    return kept


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
    if config.server is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    with whose(SERVER):
        labels = load_labels(config.server.labels, base, config.federation.task)
    check_labels(labels, config.federation)
    if aligned is not None:
        return labels.values[read_aligned(aligned)[SERVER]]
    return labels.values[: len(labels.values) - labels.official_test]


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
