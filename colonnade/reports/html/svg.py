"""Pictures of curves as inline SVG, which the page's script reads.

Colours are attributes; a page's style overrides those of text and rules for dark mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from colorsys import hls_to_rgb

from colonnade.reports.html.markup import written

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
