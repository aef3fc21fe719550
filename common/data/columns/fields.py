"""What a column of a table holds: numbers, or words of a category."""

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
"""As `types` in a configuration says it: of all but `category` numbers are made.

date: days since the beginning of 1970. With a form behind it, as `date %d.%m.%Y`, of dates in that form.
percent: `12 %` is 0.12.
boolean: 1 for true, yes and the like, 0 for false and no.
"""

Unit = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""That stands before or after numbers in text: `€` in `€ 12`."""


@dataclass(frozen=True)
class TypedColumn:
    """A typed column.

    Args:
        name: as the table's header has it.
        words: what the codes 0, 1, .. of its cells mean, ascending; None where cells are numbers.
    """

    name: str
    words: tuple[str, ...] | None = None

    @property
    def kind(self) -> Kind:
        """Whether it holds numbers, however they were written, or words."""
        return "number" if self.words is None else "category"


@dataclass(frozen=True)
class Doubt:
    """Something about a column that may be meant, and is often a mistake: what, and what to do if it is one."""

    column: str
    what: str
    hint: str

    def __str__(self) -> str:
        """In one line; it quotes no value."""
        return f"{self.column!r} {self.what}; {self.hint}"
