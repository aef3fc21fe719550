"""Types of table columns: numbers, or words of a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "category"]


@dataclass(frozen=True)
class TypedColumn:
    """A typed column.

    Args:
        name: from the table's header.
        words: meaning of the cell codes 0, 1, .., ascending; None where cells are numbers.
    """

    name: str
    words: tuple[str, ...] | None = None

    @property
    def kind(self) -> Kind:
        """`number` if the cells are numbers, however written, else `category`."""
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
