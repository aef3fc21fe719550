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
from torch import Tensor

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.data.rows import Partition
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.runtime.durable import write_kept
from colonnade.server.training.context import check_labels
from colonnade.simulation.alignment import find_rows

_T = TypeVar("_T")


def align_once(config: Config, base: Path, kept: Path) -> Path | None:
    """Finds the rows that all members have, once for all simulations, in the order of the server's rows.

    An alignment has a new order each time, and another order makes other parts of the rows.

    Args:
        config: of the whole federation.
        base: the folder that paths in it are relative to.
        kept: the file of the rows, which is read if it is there.

    Returns:
        The file; None where rows are matched by their order.

    Raises:
        ColonnadeError: as the alignment of a real run.
    """
    if config.federation.align == "none":
        return None
    if not kept.exists():
        rows = run_virtual(find_rows(config, base))
        order = rows[SERVER].argsort()
        write_kept(kept, save({name: own[order].contiguous() for name, own in rows.items()}), 0o600)
    return kept


def read_aligned(path: Path) -> Mapping[str, Tensor]:
    """Every member's rows, int64 (common,). Raises InputError."""
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError) as torn:
        raise InputError(f"{path} cannot be read: {torn}", hint="remove it: the rows are aligned again") from None


def parts_bytes(parts: Partition) -> bytes:
    """A file of the row numbers of every part."""
    return save({name: getattr(parts, name).contiguous() for name in ("train", "validation", "test")})


def read_parts(path: Path) -> Partition:
    """The parts in such a file. Raises InputError."""
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
    """Labels of the rows that take part: all, or the common ones, without a source's own test rows.

    Raises:
        ColonnadeError: the labels are missing or not usable.
    """
    if config.server is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    with whose(SERVER):
        labels = load_labels(config.server.labels, base, config.federation.task)
    check_labels(labels, config.federation)
    if aligned is not None:
        return labels.values[read_aligned(aligned)[SERVER]]
    return labels.values[: len(labels.values) - labels.official_test]


def folds_of(labels: Tensor, folds: int, repeats: int, seed: int, *, stratified: bool) -> Iterator[Fold]:
    """The folds, as scikit-learn's KFold or StratifiedKFold draws them; repeat r has the seed `seed` + r - 1.

    Args:
        labels: (rows,) classes, or (rows, targets) numbers.
        folds: number of folds.
        repeats: number of times that all rows are drawn into folds.
        seed: of the draws.
        stratified: whether every fold has about the same share of every class.

    Raises:
        InputError: there are more folds than rows, or than rows of a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold  # noqa: PLC0415

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
