"""The part of every row that a party holds, and how its values are read, completed and scaled.

A source gives the shape of a row: (columns,) for a table, (height, width) or (channels, height, width) for an image. A
split picks positions of the flattened row by party index (common/data/split.py). The parts of all parties together
cover the row; all splits but `windows` are disjoint. If a length does not divide evenly, the first parties get one
more: 28 rows over 5 parties are 6, 6, 6, 5, 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, StringConstraints

from colonnade.common.errors import ConfigError, nearest
from colonnade.common.section import Section, kind

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PartyIndex:
    """A party's place in the roster: number `index`, from 0, of `count`. Raises ConfigError unless index < count."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ConfigError(
                f"there is no party index {self.index} among {self.count}",
                hint=f"indices are counted from 0: give `index` a value below {self.count}, or raise `count`",
            )


class AllSplit(Section):
    """No split: the source holds the party's own columns."""

    kind: Literal["all"] = kind("all", "kind of split")

    def pinned(self, member: PartyIndex) -> AllSplit:  # noqa: ARG002
        return self


class _SeatedSplit(Section):
    """A split by party index. `index` and `count` override the party's place in the roster."""

    index: int | None = Field(default=None, ge=0, description="the party's place, from 0; left out, that in the roster")
    count: PositiveInt | None = Field(default=None, description="number of parts; left out, the parties of the roster")

    def counted(self, given: PartyIndex) -> PartyIndex:
        index = given.index if self.index is None else self.index
        return PartyIndex(index, self.count or given.count)

    def pinned(self, member: PartyIndex) -> Self:
        """The split that gives this party index the same part in any roster."""
        own = self.counted(member)
        return self.model_copy(update={"index": own.index, "count": own.count})


class ColumnsSplit(_SeatedSplit):
    """Columns of the flattened row.

    `random` takes shares of one permutation drawn from `seed`, the same for all parties.
    """

    kind: Literal["columns"] = kind("columns", "kind of split")
    take: Literal["even", "random"] | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default="even", description="even: contiguous shares; random: shares of one permutation; or names of columns"
    )
    seed: int = Field(default=0, description="of the permutation of `take: random`")


class WindowsSplit(_SeatedSplit):
    """Windows of equally many adjacent columns of the flattened row, overlapping where necessary.

    They are spread evenly from the first column to the last: MNIST over 100 parties with 14 pixels each (VIMADMM, Table
    XI).
    """

    kind: Literal["windows"] = kind("windows", "kind of split")
    columns: PositiveInt = Field(description="columns of a window")


class ImageRowsSplit(_SeatedSplit):
    """Horizontal bands of an image: MNIST over 14 parties gives two pixel rows each (VIMADMM, Table II)."""

    kind: Literal["image_rows"] = kind("image_rows", "kind of split")


class PatchesSplit(Section):
    """Rectangular patches of an image, row by row: for example CIFAR-10 over 9 parties (VIMADMM, Table II).

    `index` names the patch if the roster does not.
    """

    kind: Literal["patches"] = kind("patches", "kind of split")
    grid: tuple[PositiveInt, PositiveInt] = Field(description="patches down and across")
    index: int | None = Field(
        default=None, ge=0, description="the party's patch, from 0, row by row; left out, its place in the roster"
    )

    def pinned(self, member: PartyIndex) -> PatchesSplit:
        return self if self.index is not None else self.model_copy(update={"index": member.index})


Side = Literal["left", "right", "top", "bottom", "left-right", "top-bottom"]
_PAIRS: dict[str, tuple[str, str]] = {"left-right": ("left", "right"), "top-bottom": ("top", "bottom")}


class HalvesSplit(Section):
    """One half of an image. `left-right` and `top-bottom` give party 0 the first half and party 1 the second.

    With an odd number of pixels the left or upper half has one more.
    """

    kind: Literal["halves"] = kind("halves", "kind of split")
    side: Side = Field(default="left-right", description="the party's half, or the halves of both parties in order")

    def pinned(self, member: PartyIndex) -> HalvesSplit:
        return self.model_copy(update={"side": self.side_of(member)})

    def side_of(self, member: PartyIndex) -> str:
        """The side of this party index. Raises ConfigError if `side` names a pair and the roster does not have two
        parties.
        """
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


SplitConfig = Annotated[
    AllSplit | ColumnsSplit | WindowsSplit | ImageRowsSplit | PatchesSplit | HalvesSplit,
    Field(discriminator="kind", description="the part of every row that is the party's own"),
    BeforeValidator(_expand),
]
"""`{kind: image_rows}`, or `image_rows` for short."""


class MeanStd(Section):
    """A fixed mean and standard deviation, in units of 0..1 for bytes (MNIST: .1307 and .3081)."""

    mean: float = Field(description="the mean; of bytes, in units of 0 to 1")
    std: float = Field(gt=0, description="the standard deviation; of bytes, in units of 0 to 1")


ScaleConfig = Literal["none", "unit", "standard", "auto"] | MeanStd
"""none: unchanged.
unit: bytes / 255; other values / the column's largest magnitude, which gives -1..1.
standard: mean 0 and (population) standard deviation 1 per column; constant columns get only the first.
auto: the same, after asinh((x - centre) / width) in columns with a long tail (values beyond ten deviations); bytes and
    values of more than one axis a row are as with `standard`.
{mean, std}: ((x / 255) - mean) / std for bytes, (x - mean) / std for other values.
"""


class DataNoiseConfig(Section):
    """Gaussian noise on every scaled value: of every row, or of those alone that are not trained on."""

    std: float = Field(gt=0, description="standard deviation, in units of the scaled values")
    rows: Literal["all", "held_out"] = Field(
        default="all", description="held_out: rows for training stay as they are; validation and test rows are noised"
    )


Noise = Annotated[DataNoiseConfig | None, Field(description="Gaussian noise on the values, for experiments")]

Missing = Literal["refuse", "mean", "median", "zero"]
"""refuse: a missing value stops the party.
mean, median: of the training rows' numbers. A missing word is a category of its own if it occurs in training rows.
zero: the number 0; a missing word has no category.
"""

Unseen = Literal["refuse", "zero"]
"""refuse: a word that is absent from the training rows stops the party.
zero: the word has no category.
"""

Decimal = Literal[".", ","]
Thousands = Literal["", ",", ".", "'", " "]

_TYPES = ("number", "category", "date", "percent", "boolean", "text", "image")
CONTENTS = ("text", "image")
"""Types of columns that a tower with weights made elsewhere reads."""

DATE_PARTS = {"%Y": r"(?P<Y>\d{4})", "%m": r"(?P<m>\d{1,2})", "%d": r"(?P<d>\d{1,2})"}
CLOCK = {"%H": r"(?P<H>\d{1,2})", "%M": r"(?P<M>\d{2})", "%S": r"(?P<S>\d{2})"}
"""Codes of a date form and their patterns."""


def check_form(form: str) -> None:
    """Raises ValueError unless the form has year, month and day, once each."""
    known = {**DATE_PARTS, **CLOCK}
    codes = re.findall(r"%.?", form)
    if len(set(codes)) < len(codes) or not set(DATE_PARTS) <= set(codes) <= set(known):
        raise ValueError(
            f"{form!r} is no form of dates: expected %Y, %m, %d, and perhaps {', '.join(CLOCK)}, once each"
        )


def _check_type(value: Any) -> str:
    word = str(value)
    if word.startswith("date %"):
        check_form(word.removeprefix("date "))
    elif word not in _TYPES:
        raise ValueError(f"expected {', '.join(_TYPES)} or 'date %d.%m.%Y'{nearest(word, _TYPES)}")
    return word


Type = Annotated[str, BeforeValidator(_check_type)]
"""Column types as `types` names them; all but `category` become numbers.

date: days since the beginning of 1970; `date %d.%m.%Y` reads dates in that form.
percent: `12 %` is 0.12.
boolean: 1 for true, yes and the like, 0 for false and no.
text, image: what the tower of `model` makes of the text, or of the image at this path below the table's folder.
"""

Unit = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""Unit before or after numbers in text: `€` in `€ 12`."""
