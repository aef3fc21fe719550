"""A party's columns and the sources they are read from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from colonnade.common.config.data.columns import Shape
from colonnade.common.data.keys import keys_of_rows
from colonnade.common.data.on_disk import in_order
from colonnade.common.data.split import Part

Kind = Literal["number", "category"]


@dataclass(frozen=True)
class TypedColumn:
    """A column of a table; `words` are the meaning of the cell codes 0, 1, .., ascending, or None for numbers.

    `of` is the column of texts or images whose embeddings these numbers are, "" for the table's own.
    """

    name: str
    words: tuple[str, ...] | None = None
    of: str = field(default="", repr=False)

    @property
    def kind(self) -> Kind:
        return "number" if self.words is None else "category"


@dataclass(frozen=True)
class Doubt:
    """A warning about a column that is allowed and often a mistake: the observation and the remedy."""

    column: str
    what: str
    hint: str

    def __str__(self) -> str:
        """One line, without any value of the column."""
        return f"{self.column!r} {self.what}; {self.hint}"


_BLOCK = 8192  # keys that are hashed at a time


class Source(Protocol):
    """An opened source: it knows the shape of a row and reads only the requested part.

    Attributes:
        names: column or pixel names, in the order of the flattened row.
        official_test: number of last rows that are the source's own test part.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of the flattened row."""

    @property
    def official_test(self) -> int:
        """Number of last rows that are the source's own test part, 0 if it has none."""

    def read(self, part: Part) -> Tensor:
        """(n, *part.shape): bytes or float64, all rows."""

    def ids(self) -> tuple[str, ...] | None:
        """Key of each row; None if rows are matched by their order."""


@dataclass(frozen=True)
class Matrix:
    """Columns in memory, as an opened source.

    Args:
        values: (rows, columns), or (rows, height, width), or (rows, channels, height, width); float64 or bytes.
        names: one per column or pixel, in the order of the flattened row.
        keys: key of each row; None where rows are matched by their order.
        official_test: number of last rows that are the source's own test part.
    """

    values: Tensor
    names: tuple[str, ...]
    keys: tuple[str, ...] | None = None
    official_test: int = 0

    @property
    def shape(self) -> Shape:
        return tuple(self.values.shape[1:])

    def read(self, part: Part) -> Tensor:
        return self.values.flatten(1)[:, part.positions].reshape(-1, *part.shape)

    def ids(self) -> tuple[str, ...] | None:
        return self.keys


@dataclass(frozen=True)
class Features:
    """A party's columns of all rows.

    Args:
        values: (n, ...) bytes or float64, as the source has them; an `Encoder` makes them float32. In typed columns NaN
            marks a missing value and a number encodes a word.
        names: one per column or pixel, in the order of the flattened row.
        official_test: number of last rows that are the source's own test part.
        ids: key of each row; None where sources share the order of rows.
        fields: one per column of a typed table; none for plain values.
        disk: folder of the unnamed file that `values` are mapped from; None if they are in memory.
        place: location of a row in its table, by its number here: `FILE, line 7`; None where there is no table.
    """

    values: Tensor
    names: tuple[str, ...]
    official_test: int = 0
    ids: Sequence[str] | None = None
    fields: tuple[TypedColumn, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    disk: Path | None = field(default=None, compare=False)
    place: Callable[[int], str] | None = field(default=None, compare=False, repr=False)

    def rows(self, index: Tensor) -> Features:
        """These rows, int64 (m,), in this order; none of them counts as the source's own test part."""
        ids = keys_of_rows(self.ids, index)
        place, before = None, self.place
        if before is not None:
            place = lambda row: before(int(index[row]))  # noqa: E731
        values = self.values[index] if self.disk is None else in_order(self.values, index, self.disk)
        return replace(self, values=values, official_test=0, ids=ids, place=place)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any value, word, key, name or the shape.

        For the party's own records only: it is a function of private rows and must not be sent.
        """
        values = self.values.contiguous().numpy()
        digest = hashlib.sha256(f"{values.dtype} {values.shape} {self.names} {self.fields}".encode())
        digest.update(values.data)
        ids = self.ids or ()
        for start in range(0, len(ids), _BLOCK):
            # Quoted, so that the boundaries between words count.
            digest.update("".join(map(repr, ids[start : start + _BLOCK])).encode())
        return digest.hexdigest()[:16]
