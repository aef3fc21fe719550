"""The vertical split: the part of every row that a party holds.

A source gives the shape of a row: (columns,) for a table, (height, width) or (channels, height, width) for an image. A
split picks positions of the flattened row by the party index. For every kind the parts of all parties together cover
the whole row; all kinds but `windows` give disjoint parts.

If a length does not divide evenly, the first parties get one more: 28 rows over 5 parties are 6, 6, 6, 5, 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt
from torch import Tensor

from colonnade.common.errors import ConfigError, nearest

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PartyIndex:
    """A party's place in the roster: number `index`, from 0, of `count`.

    Raises:
        ConfigError: `index` is not below `count`.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ConfigError(
                f"there is no party index {self.index} among {self.count}",
                hint=f"indices are counted from 0: give `index` a value below {self.count}, or raise `count`",
            )


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

    Raises:
        ConfigError: there are more parties than items to split (`what`, for the message).
    """
    if member.count > length:
        raise ConfigError(
            f"{member.count} parties cannot share {length} {what}: some would hold nothing",
            hint="take fewer parties, or another split",
        )
    size, longer = divmod(length, member.count)
    start = member.index * size + min(member.index, longer)
    return slice(start, start + size + (member.index < longer))


class _Split(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AllSplit(_Split):
    """No split: the source holds the party's own columns."""

    kind: Literal["all"] = Field(
        default="all", description="kind of split, which decides the other keys of this section"
    )

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:  # noqa: ARG002
        """Every position, in the row's own shape."""
        return Part(torch.arange(math.prod(shape)), shape)

    def pinned(self, member: PartyIndex) -> AllSplit:  # noqa: ARG002
        """The same split: it does not depend on the party index."""
        return self


class _SeatedSplit(_Split):
    """A split by party index. `index` and `count` override the party's place in the roster."""

    index: int | None = Field(default=None, ge=0, description="the party's place, from 0; left out, that in the roster")
    count: PositiveInt | None = Field(default=None, description="number of parts; left out, the parties of the roster")

    def counted(self, given: PartyIndex) -> PartyIndex:
        """The party index that applies to this split."""
        index = given.index if self.index is None else self.index
        return PartyIndex(index, self.count or given.count)

    def pinned(self, member: PartyIndex) -> Self:
        """The split that gives this party index the same part in any roster."""
        own = self.counted(member)
        return self.model_copy(update={"index": own.index, "count": own.count})


class ColumnsSplit(_SeatedSplit):
    """Columns of the flattened row.

    `take` is `even` (contiguous shares by party index), `random` (shares of one permutation drawn from `seed`, the same
    for all parties) or a list of column names.
    """

    kind: Literal["columns"] = Field(
        default="columns", description="kind of split, which decides the other keys of this section"
    )
    take: Literal["even", "random"] | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default="even", description="even: contiguous shares; random: shares of one permutation; or names of columns"
    )
    seed: int = Field(default=0, description="of the permutation of `take: random`")

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:
        """The party's columns, flat.

        Raises:
            ConfigError: there are more parties than columns, or a listed column does not exist or is
                listed twice.
        """
        if isinstance(self.take, tuple):
            positions = _by_name(self.take, names)
        else:
            share = band(math.prod(shape), self.counted(member), "columns")
            positions = self._order(math.prod(shape))[share].sort().values
        return Part(positions, (len(positions),))

    def _order(self, width: int) -> Tensor:
        if self.take == "even":
            return torch.arange(width)
        return torch.randperm(width, generator=torch.Generator().manual_seed(self.seed))


class WindowsSplit(_SeatedSplit):
    """Windows of equally many adjacent columns of the flattened row, overlapping where necessary.

    Evenly spread from the first column to the last, for example MNIST over 100 parties with 14 pixels each (VIMADMM,
    Table XI).
    """

    kind: Literal["windows"] = Field(
        default="windows", description="kind of split, which decides the other keys of this section"
    )
    columns: PositiveInt = Field(description="columns of a window")

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:  # noqa: ARG002
        """The party's columns, flat.

        Raises:
            ConfigError: a row has fewer columns, or the windows leave some out.
        """
        width, own = math.prod(shape), self.counted(member)
        if not self.columns <= width <= self.columns * own.count:
            raise ConfigError(
                f"{own.count} windows of {self.columns} columns do not cover a row of {width}",
                hint=f"take windows of {-(-width // own.count)} to {width} columns",
            )
        start = own.index * (width - self.columns) // max(own.count - 1, 1)
        return Part(torch.arange(start, start + self.columns), (self.columns,))


class ImageRowsSplit(_SeatedSplit):
    """Horizontal bands of an image: MNIST over 14 parties gives two pixel rows each (VIMADMM, Table II)."""

    kind: Literal["image_rows"] = Field(
        default="image_rows", description="kind of split, which decides the other keys of this section"
    )

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:  # noqa: ARG002
        """The party's band: (..., rows, width).

        Raises:
            ConfigError: rows are no images, or there are more parties than pixel rows.
        """
        height, _ = _size(shape, self.kind)
        return _window(shape, band(height, self.counted(member), "pixel rows"), slice(None))


class PatchesSplit(_Split):
    """Rectangular patches of an image, row by row: for example CIFAR-10 over 9 parties (VIMADMM, Table II).

    `index` names the patch if the roster does not.
    """

    kind: Literal["patches"] = Field(
        default="patches", description="kind of split, which decides the other keys of this section"
    )
    grid: tuple[PositiveInt, PositiveInt] = Field(description="patches down and across")
    index: int | None = Field(
        default=None, ge=0, description="the party's patch, from 0, row by row; left out, its place in the roster"
    )

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:  # noqa: ARG002
        """The party's patch: (..., rows, columns).

        Raises:
            ConfigError: rows are no images, the grid is finer than the pixels, or it does not have one
                patch a party.
        """
        down, across = self.grid
        if self.index is None and member.count != down * across:
            raise ConfigError(
                f"a grid of {down} x {across} has {down * across} patches, the roster {member.count} parties",
                hint="choose a grid with one patch a party, or name this party's patch with `index`",
            )
        height, width = _size(shape, self.kind)
        cell = PartyIndex(member.index if self.index is None else self.index, down * across)
        row, column = divmod(cell.index, across)
        rows = band(height, PartyIndex(row, down), "pixel rows")
        return _window(shape, rows, band(width, PartyIndex(column, across), "pixel columns"))

    def pinned(self, member: PartyIndex) -> PatchesSplit:
        """The split that gives this party index the same patch in any roster."""
        return self if self.index is not None else self.model_copy(update={"index": member.index})


Side = Literal["left", "right", "top", "bottom", "left-right", "top-bottom"]
_PAIRS: dict[str, tuple[str, str]] = {"left-right": ("left", "right"), "top-bottom": ("top", "bottom")}


class HalvesSplit(_Split):
    """One half of an image. `left-right` and `top-bottom` give party 0 the first half and party 1 the second.

    With an odd number of pixels the left or upper half has one more.
    """

    kind: Literal["halves"] = Field(
        default="halves", description="kind of split, which decides the other keys of this section"
    )
    side: Side = Field(default="left-right", description="the party's half, or the halves of both parties in order")

    def part(self, shape: Shape, names: Sequence[str], member: PartyIndex) -> Part:  # noqa: ARG002
        """The party's half: (..., rows, columns).

        Raises:
            ConfigError: rows are no images, or the roster has not two parties and `side` names none.
        """
        side = self._side(member)
        height, width = _size(shape, self.kind)
        half = PartyIndex(int(side in ("right", "bottom")), 2)
        if side in ("left", "right"):
            return _window(shape, slice(None), band(width, half, "pixel columns"))
        return _window(shape, band(height, half, "pixel rows"), slice(None))

    def pinned(self, member: PartyIndex) -> HalvesSplit:
        """The split that gives this party index the same half in any roster."""
        return self.model_copy(update={"side": self._side(member)})

    def _side(self, member: PartyIndex) -> str:
        if self.side not in _PAIRS:
            return self.side
        if member.count != len(_PAIRS[self.side]):
            raise ConfigError(
                f"halves are for two parties, the roster has {member.count}",
                hint="give every party its `side`: left, right, top or bottom",
            )
        return _PAIRS[self.side][member.index]


def _expand(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


_Any = AllSplit | ColumnsSplit | WindowsSplit | ImageRowsSplit | PatchesSplit | HalvesSplit

SplitConfig = Annotated[
    Annotated[_Any, Field(discriminator="kind")],
    BeforeValidator(_expand),
]
"""`{kind: image_rows}`, or `image_rows` for short."""


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
