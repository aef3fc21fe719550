"""A table as a picture: of every cell the paper's value and ours on one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cli.page.svg import svg, words
from cli.reproduction.measures import unit
from cli.reproduction.standing import CellStanding, TableStanding

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 720, 250, 60, 34, 20
_PAPER, _REACHED, _SHORT = "#555", "#2ca02c", "#d62728"


def draw(name: str, standing: TableStanding) -> str:
    """The cells in per cent that were run, as a picture of its own; "" where there are none."""
    cells = [one for one in standing.cells if unit(one.cell.measure) == "%" and math.isfinite(one.mean)]
    if not cells:
        return ""
    low = min(min(one.mean, one.cell.paper) for one in cells)
    low = max(0.0, 5 * math.floor((low - 1) / 5))

    def x(value: float) -> float:
        return _LEFT + (value - low) / (100 - low) * (_WIDTH - _LEFT - _RIGHT)

    height = _TOP + _ROW * len(cells) + 12
    parts = [*_axis(x, low, height), *_legend()]
    for number, one in enumerate(cells):
        parts += _row(x, _TOP + _ROW * (number + 0.5), one)
    said = f"{name}: {standing.table.title}"
    return svg(_WIDTH, height, parts, title=said, about="; ".join(_spoken(one) for one in cells))


def _axis(x: Callable[[float], float], low: float, height: int) -> list[str]:
    step = 5 if 100 - low <= 30 else 20
    marks = [low + step * n for n in range(int((100 - low) / step) + 1)]
    lines = [
        f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP - 4}" y2="{height - 12}" stroke="#d8dde3"/>' for at in marks
    ]
    return lines + [words(x(at), height - 1, f"{at:g} %", "middle") for at in marks]


def _legend() -> list[str]:
    return [
        f'<circle cx="{_LEFT}" cy="12" r="4" fill="none" stroke="{_PAPER}" stroke-width="1.5"/>',
        words(_LEFT + 10, 16, "the paper", "start"),
        f'<circle cx="{_LEFT + 90}" cy="12" r="4" fill="{_REACHED}"/>',
        words(_LEFT + 100, 16, "ours, reached", "start"),
        f'<circle cx="{_LEFT + 200}" cy="12" r="4" fill="{_SHORT}"/>',
        words(_LEFT + 210, 16, "ours, short", "start"),
    ]


def _row(x: Callable[[float], float], y: float, one: CellStanding) -> Sequence[str]:
    paper, ours = x(one.cell.paper), x(one.mean)
    spread = one.spread or 0.0
    fill = _REACHED if one.reached else _SHORT
    bar = f'<line x1="{x(max(one.mean - spread, 0)):.1f}" x2="{x(min(one.mean + spread, 100)):.1f}" '
    return [
        words(_LEFT - 12, y + 4, f"{one.cell.row}, {one.cell.column}", "end"),
        f'<line x1="{paper:.1f}" x2="{ours:.1f}" y1="{y}" y2="{y}" stroke="#b8c0c8"/>',
        bar + f'y1="{y}" y2="{y}" stroke="{fill}" stroke-width="3"/>',
        f'<circle cx="{ours:.1f}" cy="{y}" r="4" fill="{fill}"/>',
        f'<circle cx="{paper:.1f}" cy="{y}" r="4" fill="none" stroke="{_PAPER}" stroke-width="1.5"/>',
    ]


def _spoken(one: CellStanding) -> str:
    return f"{one.cell.row}, {one.cell.column}: the paper {one.cell.paper:g}, ours {one.words}"
