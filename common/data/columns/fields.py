"""Types of table columns: numbers, or words of a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, StringConstraints

from colonnade.common.errors import nearest

Kind = Literal["number", "category"]
Decimal = Literal[".", ","]
Thousands = Literal["", ",", ".", "'", " "]

_TYPES = ("number", "category", "date", "percent", "boolean")


def _check_type(value: Any) -> str:
    word = str(value)
    if word.startswith("date %"):
        from colonnade.common.data.columns.dates import check_form  # noqa: PLC0415  # pyarrow takes 0.2 s

        check_form(word.removeprefix("date "))
    elif word not in _TYPES:
        raise ValueError(f"expected {', '.join(_TYPES)} or 'date %d.%m.%Y'{nearest(word, _TYPES)}")
    return word


Type = Annotated[str, BeforeValidator(_check_type)]
"""Column types as `types` in a configuration names them; all but `category` become numbers.

date: days since the beginning of 1970; `date %d.%m.%Y` reads dates in that form.
percent: `12 %` is 0.12.
boolean: 1 for true, yes and the like, 0 for false and no.
"""

Unit = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""Unit before or after numbers in text: `€` in `€ 12`."""


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
