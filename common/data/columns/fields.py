"""Types of table columns: numbers, or words of a category."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["number", "category"]


@dataclass(frozen=True)
class TypedColumn:
    """A column of a table; `words` are the meaning of the cell codes 0, 1, .., ascending, or None for numbers.

    `of` is the column of texts or images that a tower made these numbers of, "" for the table's own.
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
