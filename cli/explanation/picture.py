"""Bars, curves and maps as SVG: text that a page holds in itself, sharp at every size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from torch import Tensor

WIDTH, HEIGHT = 860, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 14, 46
_GREY, _MOST, _LEAST = "#9aa5b1", "#0b6e4f", "#c8553d"
_SIDE = 290  # of a map
_TEN = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


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

    parts = [_axis(y, (low, floor, high), say)]
    for seat, (name, value) in enumerate(zip(names, values, strict=True)):
        middle, top, bottom = _LEFT + (seat + 0.5) * width, *sorted((y(value), y(floor)))
        colour = dict(zip(ends, (_MOST, _LEAST), strict=True)).get(name, _GREY)
        parts.append(
            f'<rect x="{middle - 0.36 * width:.1f}" y="{top:.1f}" width="{0.72 * width:.1f}" '
            f'height="{max(bottom - top, 0.5):.1f}" fill="{colour}"><title>{escape(name)}: {say(value)}</title></rect>'
        )
        parts.append(_text(middle, top - 4, say(value), "middle") if width > 40 else "")
        parts.append(_name(middle, name, width))
    return _svg(WIDTH, HEIGHT, parts)


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    say: Callable[[float], str],
    across: Callable[[float], str],
    *,
    span: tuple[float, float],
) -> str:
    """One line a series, with its name at its end, and a legend above.

    Args:
        series: points (x, y) by name, x ascending.
        say: a y in words of the axis.
        across: an x in words of the axis.
        span: of y; what lies outside is left out.
    """
    (low, high), end = span, max(x for points in series.values() for x, _ in points)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        height = (HEIGHT - _BOTTOM) - (y - low) / (high - low) * (HEIGHT - _BOTTOM - _TOP - 14)
        return _LEFT + x / end * (WIDTH - _LEFT - _RIGHT), height

    marks = [low, low + (high - low) / 2, high]
    parts = [_axis(lambda y: place((0.0, y))[1], marks, say)]
    for x, anchor in ((0.0, "start"), (end / 2, "middle"), (end, "end")):
        parts.append(_text(place((x, low))[0], HEIGHT - _BOTTOM + 16, across(x), anchor))
    for number, (name, points) in enumerate(series.items()):
        drawn = " ".join("{:.1f},{:.1f}".format(*place(point)) for point in points if low <= point[1] <= high)
        title = f"<title>{escape(name)}</title>"
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour(number)}" stroke-width="2">{title}</polyline>'
        )
        x = _LEFT + number * (WIDTH - _LEFT) / len(series)
        parts.append(f'<rect x="{x:.0f}" y="2" width="12" height="8" fill="{colour(number)}"/>')
        parts.append(_text(x + 16, 11, name, "start"))
    return _svg(WIDTH, HEIGHT, parts)


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
    return _svg(_SIDE, _SIDE, [f'<rect width="{_SIDE}" height="{_SIDE}" fill="#f7f8fa"/>', *dots])


def colour(number: int) -> str:
    """Of a class."""
    return _TEN[number] if number < len(_TEN) else f"hsl({number * 137 % 360},60%,{35 + number % 3 * 15}%)"


def _axis(y: Callable[[float], float], marks: Sequence[float], say: Callable[[float], str]) -> str:
    lines = []
    for mark in dict.fromkeys(marks):
        if any(0 < abs(y(mark) - y(other)) < 11 for other in marks if abs(other) < abs(mark)):
            continue  # too close to one that stays
        lines.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#d8dde3"/>'
        )
        lines.append(_text(_LEFT - 6, y(mark) + 4, say(mark), "end"))
    return "".join(lines)


def _name(x: float, name: str, width: float) -> str:
    at = HEIGHT - _BOTTOM + 16
    if len(name) * 6.5 < width:
        return _text(x, at, name, "middle")
    return f'<g transform="rotate(-35 {x:.1f} {at:.1f})">{_text(x, at, name, "end")}</g>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    style = 'font-family="system-ui, sans-serif" font-size="11" fill="#333"'
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>{"".join(parts)}</svg>'
