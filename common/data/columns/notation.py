"""How numbers are written in text: what separates their fraction, and their thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.data.columns.fields import Decimal, Thousands

_MARKS = {",": ",", ".": r"\.", "'": "['’]", " ": "[ \u00a0\u202f]"}  # typesetters have marks of their own


@dataclass(frozen=True)
class Notation:
    """A way to write numbers.

    Args:
        decimal: stands before the fraction.
        thousands: stands between groups of three digits, in all numbers that are long enough or in none; "" for none.
    """

    decimal: Decimal = "."
    thousands: Thousands = ""

    def __str__(self) -> str:
        """As the configuration says it."""
        said = [f"decimal: {self.decimal!r}"] if self.decimal != "." else []
        return ", ".join([*said, *([f"thousands: {_quoted(self.thousands)}"] if self.thousands else [])])

    @cached_property
    def pattern(self) -> str:
        """A regular expression of what is a number."""
        point = _MARKS[self.decimal]
        grouped = rf"|[1-9]\d{{0,2}}(?:{_MARKS[self.thousands]}\d{{3}})+(?:{point}\d+)?" if self.thousands else ""
        return rf"^[+-]?(?:(?:\d+{point}?\d*|{point}\d+)(?:[eE][+-]?\d+)?{grouped})$"

    def fits(self, text: pa.Array) -> pa.Array:
        """Which cells are numbers; null where text is."""
        return pc.match_substring_regex(text, self.pattern)

    def plain(self, text: pa.Array) -> pa.Array:
        """Numbers as a computer writes them."""
        if self.thousands:
            text = pc.replace_substring_regex(text, _MARKS[self.thousands], "")
        return text if self.decimal == "." else pc.replace_substring(text, self.decimal, ".")


PLAIN = Notation()
"""As a computer writes numbers."""

FOREIGN = (
    Notation(","),
    Notation(".", ","),
    Notation(",", "."),
    Notation(".", "'"),
    Notation(".", " "),
    Notation(",", " "),
    Notation(",", "'"),
)
"""As people do elsewhere."""


def notations(text: pa.Array) -> tuple[Notation, ...]:
    """In which of them all cells can be written: of several that make the same numbers of them the first."""
    found: list[tuple[Notation, pa.Array]] = []
    for one in (PLAIN, *FOREIGN):
        if pc.all(one.fits(text), min_count=0).as_py():
            numbers = one.plain(text)
            if not any(numbers.equals(others) for _, others in found):
                found.append((one, numbers))
    return tuple(one for one, _ in found)


def without_unit(text: pa.Array, unit: str) -> pa.Array:
    """Cells without a unit that stands before or after the number; null where it does not."""
    mark = re.escape(unit)
    has = pc.match_substring_regex(text, rf"^[+-]?\s*{mark}|{mark}$")
    bare = pc.replace_substring_regex(text, rf"^([+-]?)\s*{mark}\s*|\s*{mark}$", r"\1")
    return pc.if_else(has, bare, pa.scalar(None, pa.string()))


def _quoted(mark: str) -> str:
    return f'"{mark}"' if mark == "'" else f"'{mark}'"
