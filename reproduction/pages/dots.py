"""Cells in per cent as a picture: of each the paper's value and ours, as dots on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.reports.html.svg import svg, words
from colonnade.reproduction.pages.axis import Axis, margin
from colonnade.reproduction.pages.fills import FILLS
from colonnade.reproduction.papers.paper_comparison import CellStanding

_WIDTH, _RIGHT, _TOP, _ROW = 720, 60, 34, 20
_PAPER = "#555"


def dots(title: str, cells: Sequence[CellStanding]) -> str:
    """A picture of these cells, one at least, which were all run; a line through a dot is its deviation."""
    left = margin([one.label for one in cells])
    x = Axis.fitting([value for one in cells for value in (one.mean, one.cell.paper)], "%", left, _WIDTH - _RIGHT)
    height = _TOP + _ROW * len(cells) + 12
    parts = [*x.lines(_TOP - 4, height - 12), *_legend(left)]
    for number, one in enumerate(cells):
        parts += _row(x, _TOP + _ROW * (number + 0.5), one)
    return svg(_WIDTH, height, parts, title=title, about="; ".join(one.spoken for one in cells))


def _legend(left: int) -> list[str]:
    return [
        f'<circle cx="{left}" cy="12" r="4" fill="none" stroke="{_PAPER}" stroke-width="1.5"/>',
        words(left + 10, 16, "the paper", "start"),
        f'<circle cx="{left + 90}" cy="12" r="4" fill="{FILLS[True]}"/>',
        words(left + 100, 16, "ours, reached", "start"),
        f'<circle cx="{left + 200}" cy="12" r="4" fill="{FILLS[False]}"/>',
        words(left + 210, 16, "ours, short", "start"),
    ]


def _row(x: Axis, y: float, one: CellStanding) -> list[str]:
    paper, ours = x(one.cell.paper), x(one.mean)
    fill = FILLS[one.reached]
    low, high = _ends(x, one.mean, one.spread)
    return [
        words(x.left - 12, y + 4, one.label, "end"),
        f'<line x1="{paper:.1f}" x2="{ours:.1f}" y1="{y}" y2="{y}" stroke="#b8c0c8"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{fill}" stroke-width="3"/>',
        f'<circle cx="{ours:.1f}" cy="{y}" r="4" fill="{fill}"/>',
        *_spread(x, y, one),
        f'<circle cx="{paper:.1f}" cy="{y}" r="4" fill="none" stroke="{_PAPER}" stroke-width="1.5"/>',
    ]


def _spread(x: Axis, y: float, one: CellStanding) -> list[str]:
    """The paper's own deviation: a thin line with ends, which ours does not hide."""
    if one.cell.spread is None:
        return []
    low, high = _ends(x, one.cell.paper, one.cell.spread)
    return [f'<path d="M{low:.1f} {y - 5}v10M{low:.1f} {y}H{high:.1f}M{high:.1f} {y - 5}v10" stroke="{_PAPER}"/>']


def _ends(x: Axis, value: float, spread: float | None) -> tuple[float, float]:
    return x(value - (spread or 0.0)), x(value + (spread or 0.0))
