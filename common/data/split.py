"""The part of every row that a party holds, by its section's split (common/config/data/columns.py), and the persons
whose rows a member holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import (
    AllSplit,
    ColumnsSplit,
    HalvesSplit,
    ImageRowsSplit,
    PartyIndex,
    PatchesSplit,
    Shape,
    SplitConfig,
    WindowsSplit,
)
from colonnade.common.errors import ConfigError, InputError, nearest


@dataclass(frozen=True)
class Part:
    """A party's part of one row.

    Args:
        positions: (k,) int64, ascending unless the columns were listed by name; in the flattened row.
        shape: the shape that these k values form.
    """

    positions: Tensor
    shape: Shape

    def pick(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names of the part's columns, given those of the whole row."""
        return tuple(names[position] for position in self.positions.tolist())


def band(length: int, member: PartyIndex, what: str) -> slice:
    """The party's contiguous share of 0 .. length-1; the first `length % count` shares are one longer.

    Raises ConfigError if there are more parties than items to split (`what`, for the message).
    """
    if member.count > length:
        raise ConfigError(
            f"{member.count} parties cannot share {length} {what}: some would hold nothing",
            hint="take fewer parties, or another split",
        )
    size, longer = divmod(length, member.count)
    start = member.index * size + min(member.index, longer)
    return slice(start, start + size + (member.index < longer))


def part_of(split: SplitConfig, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:
    """The part of a row that a split gives to a party index.

    Raises ConfigError if there are more parties than columns or pixel rows, a listed column does not exist or is listed
    twice, windows leave columns out, rows are no images, a grid is finer than the pixels or does not have one patch a
    party, or halves are of a roster that has not two parties.
    """
    match split:
        case AllSplit():
            return Part(torch.arange(math.prod(shape)), shape)
        case ColumnsSplit():
            positions = _columns(split, math.prod(shape), names, member)
            return Part(positions, (len(positions),))
        case WindowsSplit():
            start = _window_start(split, math.prod(shape), split.counted(member))
            return Part(torch.arange(start, start + split.columns), (split.columns,))
        case ImageRowsSplit():
            height, _ = _size(shape, split.kind)
            return _window(shape, band(height, split.counted(member), "pixel rows"), slice(None))
        case PatchesSplit():
            return _patch(split, shape, member)
        case HalvesSplit():
            return _half(split, shape, split.side_of(member))


def _columns(split: ColumnsSplit, width: int, names: Sequence[str], member: PartyIndex) -> Tensor:
    if isinstance(split.take, tuple):
        return _by_name(split.take, names)
    share = band(width, split.counted(member), "columns")
    if split.take == "even":
        return torch.arange(width)[share]
    return torch.randperm(width, generator=torch.Generator().manual_seed(split.seed))[share].sort().values


def _window_start(split: WindowsSplit, width: int, own: PartyIndex) -> int:
    if not split.columns <= width <= split.columns * own.count:
        raise ConfigError(
            f"{own.count} windows of {split.columns} columns do not cover a row of {width}",
            hint=f"take windows of {-(-width // own.count)} to {width} columns",
        )
    return own.index * (width - split.columns) // max(own.count - 1, 1)


def _patch(split: PatchesSplit, shape: Shape, member: PartyIndex) -> Part:
    down, across = split.grid
    if split.index is None and member.count != down * across:
        raise ConfigError(
            f"a grid of {down} x {across} has {down * across} patches, the roster {member.count} parties",
            hint="choose a grid with one patch a party, or name this party's patch with `index`",
        )
    height, width = _size(shape, split.kind)
    cell = PartyIndex(member.index if split.index is None else split.index, down * across)
    row, column = divmod(cell.index, across)
    rows = band(height, PartyIndex(row, down), "pixel rows")
    return _window(shape, rows, band(width, PartyIndex(column, across), "pixel columns"))


def _half(split: HalvesSplit, shape: Shape, side: str) -> Part:
    height, width = _size(shape, split.kind)
    half = PartyIndex(int(side in ("right", "bottom")), 2)
    if side in ("left", "right"):
        return _window(shape, slice(None), band(width, half, "pixel columns"))
    return _window(shape, band(height, half, "pixel rows"), slice(None))


def _by_name(wanted: Sequence[str], names: Sequence[str]) -> Tensor:
    position = {name: place for place, name in enumerate(names)}
    seen = set[str]()
    for name in wanted:
        if name not in position:
            raise ConfigError(
                f"the source has no column {name!r}{nearest(name, names)}",
                hint="list columns of the source under `split.take`",
            )
        if name in seen:
            raise ConfigError(f"column {name!r} is listed twice", hint="list it once under `split.take`")
        seen.add(name)
    return torch.tensor([position[name] for name in wanted])


def _size(shape: Shape, kind: str) -> tuple[int, int]:
    if len(shape) not in (2, 3):
        raise ConfigError(
            f"split {kind!r} cuts images, but a row of this source has the shape {shape}",
            hint="use the split `columns` or `all` for tables",
        )
    return shape[-2], shape[-1]


def _window(shape: Shape, rows: slice, columns: slice) -> Part:
    grid = torch.arange(math.prod(shape)).reshape(shape)[..., rows, columns]
    return Part(grid.flatten(), tuple(grid.shape))


def share(persons: int, members: int, overlap: float, seed: int) -> list[np.ndarray]:
    """The persons of each member, `members` arrays of int64, each in an order of its own.

    Args:
        members: two or more.
        overlap: fraction of persons, above 0 and at most 1, that every member holds. Each other person is held by some
            members, drawn uniformly from all subsets but the empty and the full one.
    """
    if not 0 < overlap <= 1:
        raise InputError(f"--overlap {overlap:g}: expected a share above 0, at most 1", hint="for example 0.8")
    random = np.random.default_rng(seed)
    common = round(overlap * persons)
    order = random.permutation(persons)
    masks = random.integers(1, 2**members - 1, persons - common)
    known = [np.concatenate([order[:common], order[common:][(masks >> place) & 1 == 1]]) for place in range(members)]
    return [random.permutation(rows) for rows in known]


def order(rows: int, seed: int) -> np.ndarray:
    """The numbers of the rows, int64 (rows,), in an order drawn from the seed."""
    return np.random.default_rng(seed).permutation(rows)
