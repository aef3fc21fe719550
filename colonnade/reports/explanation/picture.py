"""Bars and maps for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from colonnade.reports.html.svg import colour
from colonnade.reports.plots import GREY, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST, _LEAST = "#0b8a63", "#c8553d"
_MANY = 16  # with more bars there is no room for values


def bars(
    names: Sequence[str],
    values: Sequence[float],
    say: Callable[[float], str],
    ends: tuple[str, str] | None = None,
) -> str:
    """One bar per party from 0, with its value above it.

    Args:
        say: formats a value.
        ends: the most and the least important party, whose bars are coloured.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        fills = [dict(zip(ends or (), (_MOST, _LEAST), strict=False)).get(name, GREY) for name in names]
        drawn = axes.bar(range(len(names)), values, 0.72, color=fills)
        if len(names) <= _MANY:
            axes.bar_label(drawn, [say(value) for value in values], padding=2)
        axes.set_xticks(range(len(names)), names)
        if sum(map(len, names)) > 100:
            axes.tick_params("x", rotation=35)
            for name in axes.get_xticklabels():
                name.set(ha="right", rotation_mode="anchor")
        axes.margins(y=0.1)
        axes.grid(visible=False, axis="x")
        axes.grid(axis="y")
        axes.yaxis.set_major_formatter(lambda y, _: say(y))

    about = "; ".join(f"{name}: {say(value)}" for name, value in zip(names, values, strict=True))
    return picture((860, 260), paint, title="A bar for each party", about=about)


def scatter(points: Tensor, classes: Tensor) -> str:
    """A map: one dot per row, float (rows, 2), coloured by its class, int64 (rows,)."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set_axis_off()
        x, y = points.T.tolist()
        axes.scatter(x, y, s=9, c=[colour(number) for number in classes.tolist()], linewidths=0)

    return picture((290, 290), paint)
