"""Cells in MB or MiB as a picture: of each a bar for the paper and one for ours, on an axis in powers of ten."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.reports.html.svg import svg, words
from colonnade.reproduction.pages.axis import Axis, margin
from colonnade.reproduction.pages.fills import FILLS
from colonnade.reproduction.papers.paper_comparison import CellStanding

_WIDTH, _RIGHT, _TOP, _ROW, _BAR = 720, 130, 34, 32, 11
_PAPER = "#b8c0c8"


def bars(title: str, cells: Sequence[CellStanding], unit: str) -> str:
    """A picture of these cells, one at least, which were all run; what was never reached goes to the right edge."""
    left = margin([one.label for one in cells])
    x = Axis.fitting([value for one in cells for value in (one.mean, one.cell.paper)], unit, left, _WIDTH - _RIGHT)
    height = _TOP + _ROW * len(cells) + 16
    parts = [*x.lines(_TOP - 4, height - 16), *_legend(left)]
    for number, one in enumerate(cells):
        parts += _row(x, _TOP + _ROW * number + 4, one)
    return svg(_WIDTH, height, parts, title=title, about="; ".join(one.spoken for one in cells))


def _legend(left: int) -> list[str]:
    drawn = []
    said = ((0, _PAPER, "the paper"), (90, FILLS[True], "ours, reached"), (200, FILLS[False], "ours, short"))
    for at, fill, each in said:
        drawn.append(f'<rect x="{left + at}" y="7" width="10" height="10" fill="{fill}"/>')
        drawn.append(words(left + at + 15, 16, each, "start"))
    return drawn


def _row(x: Axis, top: float, one: CellStanding) -> list[str]:
    return [
        words(x.left - 12, top + _BAR + 4, one.label, "end"),
        *_bar(x, top, one.cell.paper, _PAPER, one.paper_words),
        *_bar(x, top + _BAR + 1, one.mean, FILLS[one.reached], one.words),
    ]


def _bar(x: Axis, top: float, value: float, fill: str, said: str) -> list[str]:
    width = max(1.0, x(value) - x.left)  # at the left end it would not be seen
    return [
        f'<rect x="{x.left}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{fill}"/>',
        words(x.left + width + 5, top + _BAR - 2, said, "start"),
    ]
