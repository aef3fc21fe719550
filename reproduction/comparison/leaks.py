"""What attacks find, as a picture: labels that a party names beside what the server rebuilds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.reports.plots import GREY, RING, Mark, legend, picture, rows
from colonnade.reproduction.comparison.protocol_results import ProtocolResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "What attacks find: labels named by a party, features rebuilt by the server"
_LABELS: Mark = {"marker": "o", "color": "#d62728", "linestyle": ""}
_FEATURES: Mark = {"marker": "s", "color": "#1f77b4", "linestyle": ""}
_MEANINGS = {
    "training labels that a party names": _LABELS,
    "by chance": RING,
    "variance of the columns that the server rebuilds": _FEATURES,
}


def draw(lanes: Sequence[ProtocolResults]) -> str:
    """A row a protocol that was attacked; "" where none was."""
    shown = [lane for lane in lanes if not (math.isnan(lane.named[0]) and math.isnan(lane.rebuilt))]
    if not shown:
        return ""

    def paint(figure: Figure) -> None:
        axes = rows(figure.subplots(), [lane.name for lane in shown])
        axes.set_xlim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        for y, lane in enumerate(shown):
            axes.plot(lane.named, [y, y], color=GREY, linewidth=1)
            for value, mark in zip((*lane.named, rebuilt_share(lane)), (_LABELS, RING, _FEATURES), strict=True):
                axes.plot(value, y, **mark)
        legend(figure, _MEANINGS)

    size = (720, 70 + 22 * len(shown))
    return picture(size, paint, title=TITLE, about="; ".join(_spoken(lane) for lane in shown))


def rebuilt_share(lane: ProtocolResults) -> float:
    """How much of the columns' variance the server rebuilds, from 0 to 1; not a number where no message names a row."""
    return math.nan if math.isnan(lane.rebuilt) else max(0.0, 1 - lane.rebuilt)


def _spoken(lane: ProtocolResults) -> str:
    named = "no labels to be read" if math.isnan(lane.named[0]) else f"{lane.named[0]:.0%} of labels"
    made = "no rows to rebuild" if math.isnan(lane.rebuilt) else f"{rebuilt_share(lane):.0%} of the variance"
    return f"{lane.name}: {named}, {made}"
