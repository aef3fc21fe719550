"""What a column of a table holds: numbers, or words of a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "category"]


@dataclass(frozen=True)
class Field:
    """A typed column.

    Args:
        name: as the table's header has it.
        words: what the codes 0, 1, .. of its cells mean, ascending; None where cells are numbers.
    """

    name: str
    words: tuple[str, ...] | None = None

    @property
    def kind(self) -> Kind:
        """As `types` in a configuration says it."""
        return "number" if self.words is None else "category"
