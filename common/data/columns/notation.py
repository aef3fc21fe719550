"""Number notation in text: the decimal mark and the thousands separator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.config.data.columns import Decimal, Thousands

_MARKS = {",": ",", ".": r"\.", "'": "['’]", " ": "[ \u00a0\u202f]"}  # typographic variants of the separators


@dataclass(frozen=True)
class Notation:
    """A number notation: the decimal mark, and the separator of groups of three digits, in all long numbers or none."""

    decimal: Decimal = "."
    thousands: Thousands = ""

    def __str__(self) -> str:
        said = [f"decimal: {self.decimal!r}"] if self.decimal != "." else []
        return ", ".join([*said, *([f"thousands: {_quoted(self.thousands)}"] if self.thousands else [])])

    @cached_property
    def pattern(self) -> str:
        """Regular expression that matches a number."""
        point = _MARKS[self.decimal]
        grouped = rf"|[1-9]\d{{0,2}}(?:{_MARKS[self.thousands]}\d{{3}})+(?:{point}\d+)?" if self.thousands else ""
        return rf"^[+-]?(?:(?:\d+{point}?\d*|{point}\d+)(?:[eE][+-]?\d+)?{grouped})$"

    def fits(self, text: pa.Array) -> pa.Array:
        """Mask of the cells that are numbers; null where `text` is."""
        return pc.match_substring_regex(text, self.pattern)

    def plain(self, text: pa.Array) -> pa.Array:
        if self.thousands:
            text = pc.replace_substring_regex(text, _MARKS[self.thousands], "")
        return text if self.decimal == "." else pc.replace_substring(text, self.decimal, ".")


PLAIN = Notation()
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in plain notation. Python's own float() takes 1_000, digits of other scripts, nan and inf too."""

FOREIGN = (
    Notation(","),
    Notation(".", ","),
    Notation(",", "."),
    Notation(".", "'"),
    Notation(".", " "),
    Notation(",", " "),
    Notation(",", "'"),
)
"""Other common notations."""


def notations(text: pa.Array) -> tuple[Notation, ...]:
    """Notations that fit all cells; the first of several that give the same numbers."""
    found: list[tuple[Notation, pa.Array]] = []
    for one in (PLAIN, *FOREIGN):
        if pc.all(one.fits(text), min_count=0).as_py():
            numbers = one.plain(text)
            if not any(numbers.equals(others) for _, others in found):
                found.append((one, numbers))
    return tuple(one for one, _ in found)


def without_unit(text: pa.Array, unit: str) -> pa.Array:
    """Cells with the unit before or after the number removed; null where it is absent."""
    mark = re.escape(unit)
    has = pc.match_substring_regex(text, rf"^[+-]?\s*{mark}|{mark}$")
    bare = pc.replace_substring_regex(text, rf"^([+-]?)\s*{mark}\s*|\s*{mark}$", r"\1")
    return pc.if_else(has, bare, pa.scalar(None, pa.string()))


def _quoted(mark: str) -> str:
    return f'"{mark}"' if mark == "'" else f"'{mark}'"
