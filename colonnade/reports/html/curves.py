"""Pictures of curves as inline SVG, which the page's script reads.

Colours are attributes; a page's style overrides those of text and rules for dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass

from colonnade.reports.html.markup import Html, tag, written

_TEN = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


def colour(number: int) -> str:
    if number < len(_TEN):
        return _TEN[number]
    light = 0.35 + number % 3 * 0.15
    red, green, blue = (round(255 * part) for part in hls_to_rgb(number * 137 % 360 / 360, light, 0.6))
    return f"#{red:02x}{green:02x}{blue:02x}"


def svg(width: int, height: int, parts: Sequence[str], *, title: str, about: str) -> str:
    """A whole picture.

    Args:
        width, height: in pixels; the page scales it.
        title, about: text alternative.
    """
    said = "".join(f"<{tag}>{written(words)}</{tag}>" for tag, words in (("title", title), ("desc", about)) if words)
    style = 'font-family="system-ui, sans-serif" font-size="11" fill="#333"'
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} class="curves" role="img" {style}>{said}{"".join(parts)}</svg>'
    )


def words(x: float, y: float, said: str, anchor: str) -> str:
    """A line of text; `anchor` is start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{written(said)}</text>'


def rules(
    y: Callable[[float], float], marks: Sequence[float], say: Callable[[float], str], sides: tuple[float, float]
) -> str:
    """Horizontal grid lines with values at the left; of two that are too close, the one nearer to 0 stays.

    Args:
        y: maps a value to its position.
        sides: x of the lines' ends.
    """
    (left, right), lines = sides, []
    for mark in dict.fromkeys(marks):
        if any(0 < abs(y(mark) - y(other)) < 11 for other in marks if abs(other) < abs(mark)):
            continue
        lines.append(f'<line x1="{left}" x2="{right}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#d8dde3"/>')
        lines.append(words(left - 6, y(mark) + 4, say(mark), "end"))
    return "".join(lines)


WIDTH, HEIGHT = 860, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 8, 24
_UPRIGHT = "#8a8f98"  # visible on light and dark backgrounds

Say = Callable[[float], str]
Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A line with a name.

    Args:
        points: (x, y), x ascending.
        dash: strokes and gaps in pixels, as in SVG; "" for a solid line.
    """

    name: str
    points: Sequence[Point]
    stroke: str
    dash: str = ""


def coloured(series: Mapping[str, Sequence[Point]]) -> list[Curve]:
    """One curve per series, each with its own colour."""
    return [Curve(name, points, colour(number)) for number, (name, points) in enumerate(series.items())]


@dataclass(frozen=True)
class _Plane:
    width: int
    height: int
    begin: float
    end: float
    low: float
    high: float

    def place(self, point: Point) -> Point:
        share = (point[1] - self.low) / ((self.high - self.low) or 1.0)
        across = (point[0] - self.begin) / ((self.end - self.begin) or 1.0)
        return _LEFT + across * (self.width - _LEFT - _RIGHT), self._floor - share * (self._floor - _TOP)

    @property
    def _floor(self) -> int:
        return self.height - _BOTTOM


def curves(
    drawn: Sequence[Curve],
    say: Say,
    across: Say,
    *,
    span: tuple[float, float],
    size: tuple[int, int] = (WIDTH, HEIGHT),
    title: str,
    about: str = "",
    mark: tuple[float, str] | None = None,
    begin: float = 0.0,
) -> str:
    """Draws the curves with two axes, for a page that shows the legend.

    Args:
        say, across: format a y and an x.
        span: range of y; points outside are not drawn.
        size: width and height in pixels.
        title, about: text alternative.
        mark: x of a vertical line, and its label.
        begin: the least x.
    """
    end = max((x for curve in drawn for x, _ in curve.points), default=begin)
    plane = _Plane(*size, begin, end, *span)
    parts = [rules(lambda y: plane.place((begin, y))[1], ticks(*span), say, (_LEFT, size[0] - _RIGHT))]
    parts.append(_feet(plane, across))
    parts += [_line(curve, plane, say, across) for curve in drawn]
    if mark is not None:
        parts.append(_upright(plane, *mark))
    return svg(*size, parts, title=title, about=about)


def legend(drawn: Iterable[Curve]) -> Html:
    """Names of curves with pieces of their lines, each once."""
    items = []
    for curve in {curve.name: curve for curve in drawn}.values():
        dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
        stroke = f'<path d="M0 5h26" stroke="{curve.stroke}" stroke-width="2"{dash}/>'
        items.append(tag("li", Html(f'<svg viewBox="0 0 26 10" aria-hidden="true">{stroke}</svg>'), curve.name))
    return tag("ul", *items, class_="legend")


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, at most `most`: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10(high - low) - 1)
    factors = (1, 2, 5, 10, 20, 50, 100)
    step *= next(f for f in factors if (high - low) / (step * f) <= most - 1)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _feet(plane: _Plane, across: Say) -> str:
    marks = ticks(plane.begin, plane.end, max(3, plane.width // 70))
    feet = [(mark, plane.place((mark, plane.low))[0]) for mark in marks]
    edge = plane.width - _RIGHT - 24
    y = plane.height - _BOTTOM + 16
    return "".join(words(min(x, edge + 24), y, across(at), "end" if x > edge else "middle") for at, x in feet)


def _upright(plane: _Plane, at: float, said: str) -> str:
    """A vertical line with a text on the side with more room; at the edge if x is outside."""
    (x, top), (_, floor) = (plane.place((min(at, plane.end), y)) for y in (plane.high, plane.low))
    left = x > plane.width / 2
    text = words(x - 5 if left else x + 5, floor - 6, said, "end" if left else "start")
    return f'<path d="M{x:.1f} {top:.1f}V{floor:.1f}" stroke="{_UPRIGHT}" stroke-width="1.5"/>{text}'


def _line(curve: Curve, plane: _Plane, say: Say, across: Say) -> str:
    points = [point for point in curve.points if plane.low <= point[1] <= plane.high]
    places = ["{:.1f},{:.1f}".format(*plane.place(point)) for point in points]
    values = (
        f'data-x="{written(";".join(across(x) for x, _ in points))}" data-y="{";".join(say(y) for _, y in points)}"'
    )
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    line = (
        f'<polyline points="{" ".join(places)}" fill="none" stroke="{curve.stroke}" stroke-width="2"{dash} {values}>'
        f"<title>{written(curve.name)}</title></polyline>"
    )
    if len(places) != 1:
        return line
    x, y = places[0].split(",")
    fill = "none" if curve.dash else curve.stroke
    return line + f'<circle cx="{x}" cy="{y}" r="4" stroke="{curve.stroke}" stroke-width="2" fill="{fill}"/>'
