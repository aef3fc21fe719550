"""Charts of the pages as inline SVG: lines, rows of bars or dots, heat maps.

Not drawn by Matplotlib, which takes a tenth of a second and 30 kB per chart: a page has up to twenty charts, and a live
page is made every two seconds. Colours are classes of the style sheet, so that dark pages need no second picture. Every
chart has a text alternative, and labels are at the lines instead of in a legend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from colonnade.reports.html.page import Html, fragment, written

Say = Callable[[float], str]
Point = tuple[float, float]

COLOURS = 6
"""Colours that can be told apart, also by those who confuse red and green: classes s1 to s6 and f1 to f6."""


def _of(colour: int) -> int:
    """The number of a colour in the classes of the style sheet."""
    return (colour - 1) % COLOURS + 1


_LETTER, _LINE = 6.7, 13.0  # pixels of a letter and of a line of text at 11 pixels


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Args:
        name: the quantity's, with its unit.
        span: lowest and highest value; None for the points' own.
    """

    name: str
    say: Say
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Trend:
    """A line with its name at its right end.

    Args:
        points: (x, y), x ascending.
        colour: from 1; beyond `COLOURS` they begin again.
        dash: strokes and gaps in pixels, as in SVG; "" for a solid line.
        raw: measured points behind a smoothed line, drawn faint.
    """

    name: str
    points: Sequence[Point]
    colour: int = 1
    dash: str = ""
    raw: Sequence[Point] = ()


@dataclass(frozen=True)
class Mark:
    """A ring at a point, or an upright line if `y` is None, with its words."""

    x: float
    said: str
    y: float | None = None


@dataclass(frozen=True)
class _Area:
    """Maps values to pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float
    right: float
    top: float
    bottom: float

    def place(self, point: Point) -> Point:
        across = (point[0] - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (point[1] - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def holds(self, point: Point) -> bool:
        return self.x[0] <= point[0] <= self.x[1] and self.y[0] <= point[1] <= self.y[1]


def line_chart(
    curves: Sequence[Trend],
    across: Axis,
    up: Axis,
    *,
    title: str,
    about: str = "",
    marks: Sequence[Mark] = (),
    size: tuple[int, int] = (460, 270),
) -> Html:
    """Curves over two axes. Points outside of the spans are not drawn.

    Args:
        title, about: text alternative.
        size: width and height in pixels; a page shrinks it to fit.
    """
    named = [curve for curve in curves if curve.name and curve.points]
    direct = 1 < len(named) <= COLOURS or (len(named) == 1 and bool(marks))
    room = max((len(curve.name) for curve in named), default=0) * _LETTER + 12 if direct else 14
    x = across.span or rounded_span([point[0] for curve in curves for point in curve.points])
    y = up.span or rounded_span([point[1] for curve in curves for point in [*curve.points, *curve.raw]])
    feet = [up.say(mark) for mark in ticks(*y)]
    plane = _Area(x, y, max(map(len, feet), default=1) * _LETTER + 10, size[0] - room, 18, size[1] - 36)
    parts = _grid(plane, across, up)
    parts += [_line(curve, plane, across.say, up.say) for curve in curves]
    parts += [_marked(mark, plane) for mark in marks]
    if direct:
        parts += _named(named, plane)
    return svg(size, parts, title=title, about=about or _described(named, across, up))


def _grid(plane: _Area, across: Axis, up: Axis, feet: Sequence[float] = (), base: float = 0) -> list[str]:
    """Level lines, values and names of both axes; `feet` are x places, logarithmic if `base` is given."""
    parts = []
    for value in ticks(*plane.y):
        y = plane.place((plane.x[0], value))[1]
        parts.append(f'<path class="grid" d="M{plane.left:.1f} {y:.1f}H{plane.right:.1f}"/>')
        parts.append(label(plane.left - 6, y + 4, up.say(value), "end"))
    taken = -math.inf
    for value in feet or ticks(*plane.x):
        x, said = plane.place((value, plane.y[0]))[0], across.say(base**value if base else value)
        half = len(said) * _LETTER / 2
        if x - half > taken + 6:
            parts.append(label(x, plane.bottom + 16, said, "middle"))
            taken = x + half
    parts.append(label((plane.left + plane.right) / 2, plane.bottom + 32, across.name, "middle", faint=True))
    parts.append(label(0, 10, up.name, "start", faint=True))
    return parts


def _line(curve: Trend, plane: _Area, across: Say, up: Say) -> str:
    parts = []
    if curve.raw:
        parts.append(f'<polyline class="line raw s{_of(curve.colour)}" points="{_places(curve.raw, plane)}"/>')
    kept = [point for point in curve.points if plane.holds(point)]
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    values = f'data-x="{written(";".join(across(x) for x, _ in kept))}" data-y="{";".join(up(y) for _, y in kept)}"'
    parts.append(
        f'<polyline class="line s{_of(curve.colour)}" points="{_places(kept, plane)}"{dash} {values}>'
        f"<title>{written(curve.name)}</title></polyline>"
    )
    if len(kept) == 1:
        x, y = plane.place(kept[0])
        parts.append(f'<circle class="f{_of(curve.colour)}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    return "".join(parts)


def _places(points: Sequence[Point], plane: _Area) -> str:
    return " ".join("{:.1f},{:.1f}".format(*plane.place(point)) for point in points if plane.holds(point))


def _named(curves: Sequence[Trend], plane: _Area) -> list[str]:
    """Names at the right ends, moved apart where ends lie close together."""
    ends = sorted(((plane.place(curve.points[-1])[1] + 4, curve) for curve in curves), key=lambda end: end[0])
    heights: list[float] = []
    for y, _ in ends:
        heights.append(max(y, heights[-1] + _LINE) if heights else max(y, plane.top))
    over = heights[-1] - (plane.bottom + 4)
    for at in reversed(range(len(heights))):  # those that were moved below the axis, and what they push, go up again
        if over <= 0:
            break
        heights[at] -= over
        over = 0 if at == 0 else heights[at - 1] + _LINE - heights[at]
    return [
        f'<text class="f{_of(curve.colour)}" x="{plane.right + 6:.1f}" y="{height:.1f}">{written(curve.name)}</text>'
        for height, (_, curve) in zip(heights, ends, strict=True)
    ]


def _marked(mark: Mark, plane: _Area) -> str:
    at = min(max(mark.x, plane.x[0]), plane.x[1])
    if mark.y is None:
        x, _ = plane.place((at, plane.y[0]))
        shape = f'<path class="mark" d="M{x:.1f} {plane.top}V{plane.bottom}"/>'
        y = plane.bottom - 6
    else:
        x, y = plane.place((at, min(max(mark.y, plane.y[0]), plane.y[1])))
        shape = f'<circle class="ring mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        y = y + 18 if y < plane.top + 16 else y - 10
    if not mark.said:
        return shape
    left = x + len(mark.said) * _LETTER + 8 > plane.right
    return shape + label(x - 7 if left else x + 7, y, mark.said, "end" if left else "start")


def _described(curves: Sequence[Trend], across: Axis, up: Axis) -> str:
    said = []
    for curve in curves[:12]:
        (first, low), (last, high) = curve.points[0], curve.points[-1]
        begin = "" if first == last else f"{up.say(low)} at {across.say(first)}, "
        said.append(f"{curve.name}: {begin}{up.say(high)} at {across.say(last)}")
    return "; ".join(said)


@dataclass(frozen=True)
class Bar:
    """A row of a chart of rows.

    Args:
        name: at the left.
        value: length of the bar, or place of the dot.
        said: at the right.
        low, high: ends of an interval around the value.
        colour: from 1.
        about: smaller words below the name.
        line: True for an upright line at the value through all rows, as a reference.
    """

    name: str | Html
    value: float
    said: str
    low: float | None = None
    high: float | None = None
    colour: int = 1
    about: str = ""
    line: bool = False
    best: bool = False


def row_chart(
    bars: Sequence[Bar],
    axis: Axis,
    *,
    caption: str,
    dots: bool = False,
    references: Mapping[str, float] | None = None,
) -> Html:
    """One row per bar that begins at 0, or per dot with its interval: as wide as the page, readable on a phone.

    Args:
        axis: the values'; without a span it covers all of them.
        dots: whether values are dots instead of bars.
        references: values of upright lines, by name.
    """
    known = references or {}
    ends = [number for bar in bars for number in (bar.value, bar.low, bar.high) if number is not None]
    low, high = axis.span or rounded_span([*ends, *known.values(), *([] if dots else [0.0])])

    def place(value: float) -> float:
        return round(100 * (min(max(value, low), high) - low) / ((high - low) or 1.0), 2)

    upright = "".join(
        f'<line class="mark" stroke-dasharray="3 3" x1="{place(at)}%" x2="{place(at)}%" y1="-2%" y2="102%"/>'
        for at in (*known.values(), *(bar.value for bar in bars if bar.line))
    )
    rows = [(bar, _strip(upright + (_dot(bar, place) if dots else _bar(bar, place)))) for bar in bars]
    feet = _strip(_feet(axis, known, (low, high), place))
    return fragment("row_chart.html", {"caption": caption, "rows": rows, "name": axis.name, "feet": feet})


def _strip(inside: str) -> Html:
    return Html(f'<svg aria-hidden="true" font-size="11">{inside}</svg>')


def _bar(bar: Bar, place: Callable[[float], float]) -> str:
    begin, end = sorted((place(0.0), place(bar.value)))
    whisker = _whisker(bar, place) if bar.low is not None else ""
    place_of = f'x="{begin}%" width="{max(end - begin, 0.3):.2f}%" y="20%" height="60%"'
    return f'<rect class="f{_of(bar.colour)}" {place_of}/>{whisker}'


def _dot(bar: Bar, place: Callable[[float], float]) -> str:
    return f'{_whisker(bar, place)}<circle class="f{_of(bar.colour)}" cx="{place(bar.value)}%" cy="50%" r="5"/>'


def _whisker(bar: Bar, place: Callable[[float], float]) -> str:
    if bar.low is None or bar.high is None:
        return ""
    low, high = place(bar.low), place(bar.high)
    ends = "".join(f'<line class="whisker" x1="{at}%" x2="{at}%" y1="32%" y2="68%"/>' for at in (low, high))
    return f'<line class="whisker" x1="{low}%" x2="{high}%" y1="50%" y2="50%"/>{ends}'


def _feet(
    axis: Axis, references: Mapping[str, float], span: tuple[float, float], place: Callable[[float], float]
) -> str:
    """Values at both ends, 0 if it lies between, and names of the reference lines; few, to fit a phone."""
    marks = [(span[0], "start"), (span[1], "end")]
    if span[0] < 0 < span[1] and 15 < place(0.0) < 85:
        marks.append((0.0, "middle"))
    parts = [
        f'<text class="faint" x="{place(at)}%" y="70%" text-anchor="{anchor}">{written(axis.say(at))}</text>'
        for at, anchor in marks
    ]
    for name, at in references.items():
        x = place(at)
        anchor = "start" if x < 20 else "end" if x > 80 else "middle"
        parts.append(f'<text x="{x}%" y="150%" text-anchor="{anchor}">{written(name)}</text>')
    return "".join(parts)


@dataclass(frozen=True)
class Dot:
    """A named point, with an upright interval if `low` and `high` are given; `colour` from 1."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    colour: int = 1


def scatter_chart(
    dots: Sequence[Dot],
    across: Axis,
    up: Axis,
    *,
    title: str,
    references: Mapping[str, float] | None = None,
    log: bool = True,
    size: tuple[int, int] = (460, 300),
) -> Html:
    """Points over two axes, named in order while there is room; all are in the text alternative.

    Args:
        title: text alternative.
        log: show x, which is above 0, by its logarithm.
        references: values of level lines, by name.
    """
    known = references or {}
    scaled = math.log10 if log else float
    low, high = scaled(min(dot.x for dot in dots)), scaled(max(dot.x for dot in dots))
    margin = 0.1 if log else 0.05 * (high - low) or 1.0
    x = (low - margin, high + margin)
    feet = [math.log10(value) for value in _decades(10 ** x[0], 10 ** x[1])] if log else []
    ends = [value for dot in dots for value in (dot.y, dot.low, dot.high) if value is not None]
    y = up.span or rounded_span([*ends, *known.values()])
    wide = max(len(up.say(mark)) for mark in ticks(*y))
    plane = _Area(x, y, wide * _LETTER + 10, size[0] - 26, 18, size[1] - 36)
    parts = _grid(plane, across, up, feet, base=10 if log else 0)
    levels = []
    for name, at in known.items():
        level = plane.place((x[0], at))[1]
        parts.append(f'<path class="mark" stroke-dasharray="3 3" d="M{plane.left:.1f} {level:.1f}H{plane.right:.1f}"/>')
        levels.append((name, level))
    places = [plane.place((scaled(dot.x), dot.y)) for dot in dots]
    taken = [(left - 5, top - 5, left + 5, top + 5) for left, top in places]
    parts += [_beside(name, (plane.left - 5, level - 8), plane, taken, faint=True) for name, level in levels]
    for dot, place in zip(dots, places, strict=True):
        parts.append(_point(dot, place, plane))
        parts.append(_beside(dot.name, place, plane, taken) if dot.name else "")
    about = "; ".join(f"{dot.name}: {up.say(dot.y)} at {across.say(dot.x)}" for dot in dots)
    return svg(size, parts, title=title, about=about, kind="cloud")


_Box = tuple[float, float, float, float]  # left, top, right, bottom


def _point(dot: Dot, place: Point, plane: _Area) -> str:
    colour, x = _of(dot.colour), place[0]
    ring = (
        f'<circle class="f{colour}" cx="{x:.1f}" cy="{place[1]:.1f}" r="5"><title>{written(dot.name)}</title></circle>'
    )
    if dot.low is None or dot.high is None:
        return ring
    low, high = (plane.place((plane.x[0], min(max(end, plane.y[0]), plane.y[1])))[1] for end in (dot.low, dot.high))
    return f'<path class="s{colour} raw" d="M{x:.1f} {low:.1f}V{high:.1f}"/>{ring}'


def _beside(name: str, place: Point, plane: _Area, taken: list[_Box], *, faint: bool = False) -> str:
    """The name right of, left of, above or below its point; "" if there is no room."""
    (x, y), width = place, len(name) * _LETTER
    sides = ((x + 9, y + 4, "start"), (x - 9, y + 4, "end"), (x, y - 9, "middle"), (x, y + 18, "middle"))
    for left, base, anchor in sides:
        begin = left - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        box = (begin, base - 10, begin + width, base + 2)
        inside = plane.left <= box[0] and box[2] <= plane.right and plane.top - 6 <= box[1] and box[3] <= plane.bottom
        if inside and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return label(left, base, name, anchor, faint=faint)
    return ""


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten between two positive numbers; with fewer than three, 1, 2 and 5 times powers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        if len(kept := [value for value in found if low <= value <= high]) > 2:
            break
    return kept


def heat_map(counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str) -> Html:
    """Rows by true (downwards) and predicted class; stronger colours for larger shares of the true class's rows.

    Args:
        counts: rows by true and then predicted class.
        names: class names; above 30 classes the caller shows the worst pairs instead.
        title: text alternative.
    """
    cell = 64 if len(names) <= 4 else 36 if len(names) <= 12 else 24
    short = [name if len(name) <= 14 else name[:13] + "…" for name in names]
    left, longest = max(map(len, short)) * _LETTER + 12, max(map(len, short))
    tilted = longest * _LETTER > cell
    top = longest * _LETTER * 0.75 + 30 if tilted else 34.0
    width = left + cell * len(names) + (top if tilted else 4)
    parts = [label(left, 12, "predicted", "start", faint=True), label(0, top - 6, "true", "start", faint=True)]
    for at, name in enumerate(short):
        x, y = left + cell * (at + 0.5), top - 6
        turned = f' transform="rotate(-45 {x:.1f} {y:.1f})"' if tilted else ""
        where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{"start" if tilted else "middle"}"'
        parts.append(f"<text {where}{turned}>{written(name)}</text>")
        parts.append(label(left - 6, top + cell * (at + 0.5) + 4, name, "end"))
    for row, line in enumerate(counts):
        total = sum(line) or 1
        for column, number in enumerate(line):
            parts.append(_cell((left + cell * column, top + cell * row), cell, number, number / total, row == column))
    return svg((round(width), round(top + cell * len(names) + 4)), parts, title=title, kind="heat")


def _cell(corner: Point, side: int, number: int, share: float, right: bool) -> str:
    x, y = corner
    strength = 0.15 + 0.55 * share if number else 0.0  # text on it keeps its contrast
    shape = (
        f'<rect class="{"right" if right else "wrong"}" style="--share:{strength:.2f}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{side - 1}" height="{side - 1}"/>'
    )
    if not number:
        return shape
    small = ' font-size="9"' if len(str(number)) * _LETTER > side - 2 else ""
    words = f'<text class="count" x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" text-anchor="middle"{small}>'
    return f"{shape}{words}{number}</text>"


def point_map(groups: Mapping[str, Sequence[Point]], *, title: str, side: int = 320) -> Html:
    """Dots on a plane without axes, one colour per group, with its name at its middle.

    Args:
        title: text alternative.
        side: width and height in pixels.
    """
    every = [point for points in groups.values() for point in points]
    (left, right), (low, high) = (
        (min(values, default=0.0), max(values, default=1.0))
        for values in ([x for x, _ in every], [y for _, y in every])
    )
    plane = _Area((left, right), (low, high), 8, side - 8, 8, side - 8)
    parts, names = [], []
    for number, (name, points) in enumerate(groups.items()):
        places = [plane.place(point) for point in points]
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        parts.append(f'<path class="s{_of(number + 1)} dots" d="{dots}"/>')
        x, y = (sorted(values)[len(values) // 2] for values in zip(*places, strict=True))
        names.append(f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{written(name)}</text>')
    return svg((side, side), parts + names, title=title, kind="map")


def svg(size: tuple[int, int], parts: Sequence[str], *, title: str, about: str = "", kind: str = "curves") -> Html:
    """A whole picture.

    Args:
        size: width and height in pixels; the page scales it down.
        title, about: text alternative.
    """
    said = "".join(f"<{name}>{written(words)}</{name}>" for name, words in (("title", title), ("desc", about)) if words)
    box = f'viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}"'
    return Html(f'<svg {box} class="{kind}" role="img" font-size="11">{said}{"".join(parts)}</svg>')


def label(x: float, y: float, said: str, anchor: str, *, faint: bool = False) -> str:
    """A line of text; `anchor` is start, middle or end."""
    kind = ' class="faint"' if faint else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{written(said)}</text>'


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, at most `most`: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10(high - low) - 1)
    factors = (1, 2, 5, 10, 20, 50, 100)
    step *= next(f for f in factors if (high - low) / (step * f) <= most - 1)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [round(number * step, 12) for number in range(first, last + 1)]


def running_mean(points: Sequence[Point], width: int) -> list[Point]:
    """Mean of the last `width` values at every point."""
    means, total = [], 0.0
    for at, (x, y) in enumerate(points):
        total += y - (points[at - width][1] if at >= width else 0.0)
        means.append((x, total / min(at + 1, width)))
    return means


def rounded_span(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest value, rounded outwards to ticks."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-9:
        size = max(abs(low), abs(high))
        around = 0.5 * size if size > 1e-9 else 0.5
        low, high = low - around, high + around
    marks = ticks(low, high)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    return min(low, step * math.floor(low / step + 1e-9)), max(high, step * math.ceil(high / step - 1e-9))
