"""Standalone pictures of the documentation, drawn by Matplotlib as SVG: equal values give equal bytes.

Text and axes inherit the colour of the page, in light and dark. `as_file` adds both colours to a standalone picture.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colonnade.reports.html.page import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#8a8f95"
"""Can be seen on white and on black."""

Mark = Mapping[str, Any]
"""A dot or a square, in Matplotlib's words for lines."""

RING: Mark = {"marker": "o", "color": GREY, "markerfacecolor": "none", "linestyle": ""}

Say = Callable[[float], str]


@dataclass(frozen=True)
class DrawnLine:
    """A curve with its name and colour."""

    name: str
    points: Sequence[tuple[float, float]]
    stroke: str


_TEN = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


def colour(number: int) -> str:
    if number < len(_TEN):
        return _TEN[number]
    light = 0.35 + number % 3 * 0.15
    red, green, blue = (round(255 * part) for part in hls_to_rgb(number * 137 % 360 / 360, light, 0.6))
    return f"#{red:02x}{green:02x}{blue:02x}"


def coloured(series: Mapping[str, Sequence[tuple[float, float]]]) -> list[DrawnLine]:
    return [DrawnLine(name, points, colour(number)) for number, (name, points) in enumerate(series.items())]


_INK = "#010203"  # placeholder for the colour of the surrounding text
_STYLE = {
    "axes.axisbelow": True, "axes.edgecolor": GREY, "axes.facecolor": "none", "axes.grid": True,
    "axes.grid.axis": "x", "axes.labelcolor": _INK, "axes.spines.right": False, "axes.spines.top": False,
    "axes.titlelocation": "left", "axes.titlesize": "medium", "figure.facecolor": "none",
    "font.sans-serif": "DejaVu Sans", "font.size": 8.5, "grid.alpha": 0.3, "grid.color": GREY,
    "legend.frameon": False, "lines.linewidth": 1.5, "lines.markersize": 6, "lines.scale_dashes": False,
    "svg.fonttype": "none", "svg.hashsalt": "colonnade", "text.color": _INK,
    "xtick.color": GREY, "xtick.labelcolor": _INK, "ytick.color": GREY, "ytick.labelcolor": _INK,
    "ytick.major.size": 0,
}  # fmt: skip
_NOTHING = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_COLOURS = (
    "<style>svg{color:#222;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e4e7ea;background:#15181c}}</style>"
)


def picture(size: tuple[int, int], paint: Callable[[Figure], None], *, title: str = "", about: str = "") -> str:
    """An SVG element for a page.

    Args:
        size: width and height in pixels.
        paint: draws on the figure.
        title, about: text alternative.
    """
    from matplotlib import figure, style  # noqa: PLC0415  # .3 s; not pyplot, which looks for a display

    drawn = io.StringIO()
    with style.context(["default", _STYLE]):
        made = figure.Figure((size[0] / 96, size[1] / 96), layout="constrained")
        paint(made)
        made.savefig(drawn, format="svg", metadata=_NOTHING, bbox_inches="tight")
    return _cleaned(drawn.getvalue(), title, about)


def as_file(drawn: str) -> str:
    """A standalone picture with its own background and text colour, light or dark as the reader's screen."""
    return drawn.replace(">", f">{_COLOURS}", 1) + "\n"


def lines(
    drawn: Sequence[DrawnLine], say: Say, across: Say, *, span: tuple[float, float], foot: str = "", title: str = ""
) -> str:
    """Curves with a legend.

    Args:
        say, across: format a y and an x; ticks of x are whole numbers.
        foot: label of x.
        title: text alternative.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for curve in drawn:
            x, y = zip(*curve.points, strict=True)
            axes.plot(x, y, color=curve.stroke, marker="" if len(x) > 1 else "o", label=curve.name)
        axes.set_ylim(span)
        axes.grid(axis="y")
        axes.set_xlabel(foot)
        axes.locator_params(axis="x", integer=True)
        axes.xaxis.set_major_formatter(lambda x, _: across(x))
        axes.yaxis.set_major_formatter(lambda y, _: say(y))
        figure.legend(loc="outside right upper")

    return picture((680, 360), paint, title=title)


def rows(axes: Axes, names: Sequence[str]) -> Axes:
    """Labels one row per name, from the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return axes


def legend(figure: Figure, marks: Mapping[str, Mark]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    handles = [Line2D([], [], label=meaning, **mark) for meaning, mark in marks.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), columnspacing=1.5)


def _cleaned(text: str, title: str, about: str) -> str:
    """Removes what only a file needs or is invisible, and adds the text alternative."""
    text = re.sub("<defs>\\s*<style.*?</defs>|\\n *", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub("<[^>]*>", _shortened, text).replace(_INK, "currentColor")
    said = "".join(f"<{tag}>{written(words)}</{tag}>" for tag, words in (("title", title), ("desc", about)) if words)
    font = 'font-family="system-ui, sans-serif" stroke-linejoin="round"' + (' role="img"' if title else "")
    return re.sub("<svg([^>]*)>", lambda found: f"<svg{found[1]} {font}>{said}", text, count=1)


def _shortened(tag: re.Match[str]) -> str:
    """Rounds positions to hundredths, and drops unused ids."""
    said = re.sub('(?<=<g) id=".*?"|font-family: .*?; | transform="rotate\\(-0 .*?"', "", tag[0])
    return re.sub(r"(\.\d\d)\d+", r"\1", said)
