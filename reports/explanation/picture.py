"""Bars and maps as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from torch import Tensor

from colonnade.reports.html.svg import colour, rules, svg, words

WIDTH, HEIGHT = 860, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 14, 46
_GREY, _MOST, _LEAST = "#9aa5b1", "#0b6e4f", "#c8553d"
_SIDE = 290  # of a map


def bars(
    names: Sequence[str],
    values: Sequence[float],
    say: Callable[[float], str],
    *,
    ends: tuple[str, str],
    floor: float = 0.0,
) -> str:
    """One bar a party, with its value above it.

    Args:
        say: a value in words of the axis.
        ends: the most and the least important party, whose bars are coloured.
        floor: where bars begin; others than 0 are for values that differ little.
    """
    low, high = min(floor, *values), max(floor, *values)
    spread = (high - low) or 1.0
    width = (WIDTH - _LEFT - _RIGHT) / len(names)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (value - low) / spread * (HEIGHT - _BOTTOM - _TOP - 14)

    parts = [rules(y, (low, floor, high), say, (_LEFT, WIDTH - _RIGHT))]
    for seat, (name, value) in enumerate(zip(names, values, strict=True)):
        middle, top, bottom = _LEFT + (seat + 0.5) * width, *sorted((y(value), y(floor)))
        colour = dict(zip(ends, (_MOST, _LEAST), strict=True)).get(name, _GREY)
        parts.append(
            f'<rect x="{middle - 0.36 * width:.1f}" y="{top:.1f}" width="{0.72 * width:.1f}" '
            f'height="{max(bottom - top, 0.5):.1f}" fill="{colour}"><title>{escape(name)}: {say(value)}</title></rect>'
        )
        parts.append(words(middle, top - 4, say(value), "middle") if width > 40 else "")
        parts.append(_name(middle, name, width))
    return svg(WIDTH, HEIGHT, parts)


def scatter(points: Tensor, classes: Tensor) -> str:
    """A map: one dot a row, coloured by its class.

    Args:
        points: float (rows, 2).
        classes: int64 (rows,).
    """
    low, high = points.min(0).values, points.max(0).values
    placed = (points - low) / (high - low).clamp(min=1e-9) * (_SIDE - 12) + 6
    dots = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2" fill="{colour(number)}"/>'
        for (x, y), number in zip(placed.tolist(), classes.tolist(), strict=True)
    ]
    return svg(_SIDE, _SIDE, [f'<rect width="{_SIDE}" height="{_SIDE}" fill="#f7f8fa"/>', *dots])


def _name(x: float, name: str, width: float) -> str:
    at = HEIGHT - _BOTTOM + 16
    if len(name) * 6.5 < width:
        return words(x, at, name, "middle")
    return f'<g transform="rotate(-35 {x:.1f} {at:.1f})">{words(x, at, name, "end")}</g>'
