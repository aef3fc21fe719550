"""Claims as a picture: of each the values of its runs on an axis of its own, the run that is to be ahead marked."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from colonnade.reports.html.svg import svg, words
from colonnade.reproduction.pages.axis import Axis, margin
from colonnade.reproduction.pages.fills import FILLS
from colonnade.reproduction.papers.measures import unit
from colonnade.reproduction.papers.paper_comparison import ClaimStanding

_WIDTH, _RIGHT, _TOP, _ROW, _LINE, _LETTERS = 720, 130, 34, 20, 15, 90
_OTHER = "#555"
_SAID = {True: "reached", False: "short", None: "not run yet"}


def orders(title: str, claims: Sequence[ClaimStanding]) -> str:
    """A picture of these claims, one at least, whose runs are measured in one unit each."""
    left = margin([run for one in claims for run in one.values])
    parts, top = _legend(), _TOP
    for one in claims:
        drawn, top = _claim(one, left, top)
        parts += drawn
    about = "; ".join(f"{one.claim.text}: {one.words}, {_SAID[one.reached]}" for one in claims)
    return svg(_WIDTH, top, parts, title=title, about=about)


def _legend() -> list[str]:
    said = [(12, True, "to be ahead, and is"), (152, False, "to be ahead, and is not")]
    drawn = [f'<circle cx="{at}" cy="12" r="5" fill="{FILLS[mark]}"/>' for at, mark, _ in said]
    drawn += [words(at + 10, 16, each, "start") for at, _, each in said]
    return [*drawn, _ring(322, 12), words(332, 16, "the others", "start")]


def _claim(one: ClaimStanding, left: int, top: int) -> tuple[list[str], int]:
    """What is drawn of it below a height, and the height below that."""
    lines = textwrap.wrap(one.claim.text, _LETTERS)
    parts = [words(8, top + _LINE * (number + 0.8), line, "start") for number, line in enumerate(lines)]
    parts.append(words(_WIDTH - 8, top + 0.8 * _LINE, _SAID[one.reached], "end"))
    top += _LINE * len(lines) + 4
    first = next(iter(one.values))
    x = Axis.fitting(one.values.values(), unit(one.claim.measures[first]), left, _WIDTH - _RIGHT)
    foot = top + _ROW * len(one.values)
    parts += x.lines(top, foot)
    for number, run in enumerate(one.values):
        fill = FILLS[one.reached] if run == first else ""
        parts += _row(x, top + _ROW * (number + 0.5), one, run, fill)
    return parts, foot + 30


def _row(x: Axis, y: float, one: ClaimStanding, run: str, fill: str) -> list[str]:
    value = one.values[run]
    parts = [
        words(x.left - 12, y + 4, run, "end"),
        words(x.right + 14, y + 4, one.said(run), "start"),
    ]
    if math.isnan(value):
        return parts
    at = x(value)
    return [*parts, f'<circle cx="{at:.1f}" cy="{y}" r="5" fill="{fill}"/>' if fill else _ring(at, y)]


def _ring(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="none" stroke="{_OTHER}" stroke-width="1.5"/>'
