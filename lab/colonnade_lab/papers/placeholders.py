"""Placeholders in a list's texts, which results fill in, so that measured numbers are never typed by hand.

{run.accuracy}                          mean over seeds with its interval {run.accuracy - other.accuracy}
difference, paired by seed {run.mb@95 / other.mb@95}               ratio, paired by seed {paper table3: ROW, COLUMN}
the paper's value of a cell
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_VALUE = r"([a-z0-9_]+)\.([a-z_]+(?:@[a-z0-9_.]+)?)"
_PAPER = r"paper ([a-z0-9_]+): ([^{}]+)"
_FORM = re.compile(r"\{(?:" + _PAPER + "|" + _VALUE + r"(?: ([-/]) " + _VALUE + r")?)\}")
_TYPED = re.compile(r"\d[\d.,]*\s*(%|points?\b|[MKG]i?B\b|seconds\b|s\b|times\b)")


@dataclass(frozen=True)
class Placeholder:
    """A placeholder in a text.

    Args:
        table, label: of the paper's cell; empty for a value of ours.
        values: run and measure of one value, or of two.
        sign: `-` or `/` between two.
    """

    table: str = ""
    label: str = ""
    values: tuple[tuple[str, str], ...] = ()
    sign: str = ""


def placeholders(text: str) -> Iterator[Placeholder]:
    return (_read(found) for found in _FORM.finditer(text))


def fill(text: str, said: Callable[[Placeholder], str]) -> str:
    """Replaces each placeholder by what `said` returns."""
    return _FORM.sub(lambda found: said(_read(found)), text)


def typed(text: str) -> str:
    """First measured number that the text has outside of placeholders; "" if there is none."""
    found = _TYPED.search(_FORM.sub("", text))
    return found[0] if found else ""


def _read(found: re.Match[str]) -> Placeholder:
    table, label, run, measure, sign, other, second = found.groups()
    if table:
        return Placeholder(table, label.strip())
    values = ((run, measure), (other, second)) if sign else ((run, measure),)
    return Placeholder(values=values, sign=sign or "")
