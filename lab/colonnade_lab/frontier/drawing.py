"""Picture of a set: one panel per cost, one line per protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from colonnade.reports.plots import GREY, as_file, picture
from colonnade_lab.comparison.figures import strokes
from colonnade_lab.frontier.looks import AXES, FrontierPoint
from colonnade_lab.frontier.standing import SetFrontier
from colonnade_lab.frontier.words import axis_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (980, 900)


def drawing(title: str, found: SetFrontier, protocols: Sequence[str]) -> str:
    """Draws a set's frontiers, at least one, as SVG.

    Args:
        protocols: all of the plan, in its order, which fixes their colours on every picture.
    """

    def paint(figure: Figure) -> None:
        panels = figure.subplots(3, 2).flat
        for axis, axes in zip(AXES, panels, strict=False):
            _panel(axes, axis, found.fronts[axis], found.references, protocols)
        last = panels[len(AXES)]
        last.axis("off")
        handles, labels = panels[0].get_legend_handles_labels()
        last.legend(handles, labels, loc="center", ncols=2)

    fronts = found.fronts[AXES[0]]
    about = "; ".join(f"{name} comes to {front[-1].test:.1%}" for name, front in fronts.items() if front)
    return as_file(picture(_SIZE, paint, title=f"Frontiers on {title}", about=about))


def _panel(
    axes: Axes,
    axis: str,
    fronts: Mapping[str, Sequence[FrontierPoint]],
    references: frozenset[str],
    protocols: Sequence[str],
) -> None:
    axes.set_title(f"test accuracy against {axis_words(axis)}")
    axes.set_xscale("log")
    axes.grid(axis="y")
    most = max((front[-1].cost for front in fronts.values() if front), default=1.0)
    for name, front in fronts.items():
        if not front:
            continue
        colour, dash = (GREY, "4 4") if name in references else strokes(protocols.index(name))
        style = (0, tuple(map(float, dash.split()))) if dash else "-"
        x = [*(look.cost for look in front), most]
        y = [*(look.test for look in front), front[-1].test]
        axes.step(x, y, where="post", color=colour, linestyle=style, label=name)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
