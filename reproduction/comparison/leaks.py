"""What attacks find, as a picture: labels that a party names beside what the server rebuilds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from colonnade.reports.html.svg import svg, words
from colonnade.reproduction.comparison.protocol_results import Lane

TITLE = "What attacks find: labels named by a party, features rebuilt by the server"
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 720, 110, 20, 44, 22
_LABELS, _CHANCE, _FEATURES = "#d62728", "#7f7f7f", "#1f77b4"


def draw(lanes: Sequence[Lane]) -> str:
    """A row a protocol that was attacked; "" where none was."""
    shown = [lane for lane in lanes if not (math.isnan(lane.named[0]) and math.isnan(lane.rebuilt))]
    if not shown:
        return ""
    height = _TOP + _ROW * len(shown) + 24
    parts = [*_axis(height), *_legend()]
    for number, lane in enumerate(shown):
        parts += _row(_TOP + _ROW * (number + 0.5), lane)
    return svg(_WIDTH, height, parts, title=TITLE, about="; ".join(_spoken(lane) for lane in shown))


def rebuilt_share(lane: Lane) -> float:
    """How much of the columns' variance the server rebuilds, from 0 to 1; not a number where no message names a row."""
    return math.nan if math.isnan(lane.rebuilt) else max(0.0, 1 - lane.rebuilt)


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _axis(height: int) -> list[str]:
    marks = [n / 5 for n in range(6)]
    lines = [
        f'<line x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="{_TOP - 4}" y2="{height - 18}" stroke="#d8dde3"/>'
        for at in marks
    ]
    return lines + [words(_x(at), height - 4, f"{at:.0%}", "middle") for at in marks]


def _legend() -> list[str]:
    return [
        f'<circle cx="{_LEFT}" cy="14" r="5" fill="{_LABELS}"/>',
        words(_LEFT + 10, 18, "training labels that a party names", "start"),
        f'<circle cx="{_LEFT + 210}" cy="14" r="4" fill="none" stroke="{_CHANCE}" stroke-width="1.5"/>',
        words(_LEFT + 220, 18, "by chance", "start"),
        f'<rect x="{_LEFT + 300}" y="9" width="10" height="10" fill="{_FEATURES}"/>',
        words(_LEFT + 316, 18, "variance of the columns that the server rebuilds", "start"),
    ]


def _row(y: float, lane: Lane) -> list[str]:
    parts = [words(_LEFT - 12, y + 4, lane.name, "end")]
    named, chance = lane.named
    if not math.isnan(named):
        parts += [
            f'<line x1="{_x(chance):.1f}" x2="{_x(named):.1f}" y1="{y}" y2="{y}" stroke="#b8c0c8"/>',
            f'<circle cx="{_x(chance):.1f}" cy="{y}" r="4" fill="none" stroke="{_CHANCE}" stroke-width="1.5"/>',
            f'<circle cx="{_x(named):.1f}" cy="{y}" r="5" fill="{_LABELS}"/>',
        ]
    if not math.isnan(lane.rebuilt):
        x = _x(rebuilt_share(lane))
        parts.append(f'<rect x="{x - 5:.1f}" y="{y - 5}" width="10" height="10" fill="{_FEATURES}"/>')
    return parts


def _spoken(lane: Lane) -> str:
    named = "no labels to be read" if math.isnan(lane.named[0]) else f"{lane.named[0]:.0%} of labels"
    made = "no rows to rebuild" if math.isnan(lane.rebuilt) else f"{rebuilt_share(lane):.0%} of the variance"
    return f"{lane.name}: {named}, {made}"
