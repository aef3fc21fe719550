"""A party's columns, and what they are read from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from torch import Tensor

from colonnade.common.data.columns.fields import Doubt, TypedColumn
from colonnade.common.data.split import Part, Shape


class Source(Protocol):
    """An opened source: it knows what a row looks like and reads no more than a part of it.

    Attributes:
        shape: of one row: (columns,), (height, width) or (channels, height, width).
        names: of the flattened row's columns or pixels.
        official_test: how many of the last rows are the source's own test part.
    """

    @property
    def shape(self) -> Shape:
        """Of one row."""

    @property
    def names(self) -> tuple[str, ...]:
        """One a column, in the order of the flattened row."""

    @property
    def official_test(self) -> int:
        """The last rows that are the source's own test part, 0 if it has none."""

    def read(self, part: Part) -> Tensor:
        """(n, *part.shape): bytes or float64, all rows."""

    def ids(self) -> tuple[str, ...] | None:
        """Who each row is about, or None where the order of rows says it."""


@dataclass(frozen=True)
class Features:
    """What a party holds of every row.

    Args:
        values: (n, ...) bytes or float64, as the source has them; an `Encoder` makes them float32. In typed columns
            NaN stands for what is missing, and a number for a word.
        names: one a column or pixel, in the order of the flattened row.
        official_test: how many of the last rows are the source's own test part.
        ids: who each row is about; None where sources share the order of rows.
        fields: one a column of a table, which has types; none for plain values.
        doubts: what was noticed in a table as it was read.
    """

    values: Tensor
    names: tuple[str, ...]
    official_test: int = 0
    ids: tuple[str, ...] | None = None
    fields: tuple[TypedColumn, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def rows(self, index: Tensor) -> Features:
        """These rows, in this order, of which none is the source's own test part.

        Args:
            index: row numbers, int64 (m,).
        """
        ids = None if self.ids is None else tuple(self.ids[row] for row in index.tolist())
        return replace(self, values=self.values[index], official_test=0, ids=ids)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any value, word, key, name or the shape.

        For the party's own records only: it is a function of private rows and must not be sent.
        """
        values = self.values.contiguous().numpy()
        digest = hashlib.sha256(f"{values.dtype} {values.shape} {self.names} {self.fields}".encode())
        digest.update(values.data)
        for key in self.ids or ():
            digest.update(repr(key).encode())  # in quotes: where one ends and another begins counts
        return digest.hexdigest()[:16]
