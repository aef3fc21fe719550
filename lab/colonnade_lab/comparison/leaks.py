"""Picture of the attacks: labels that a party infers against columns that the server reconstructs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.reports.plots import GREY, RING, Mark, legend, picture, rows
from colonnade_lab.comparison.protocol_results import ProtocolResults

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


def draw(results: Sequence[ProtocolResults]) -> str:
    """One row per attacked protocol; "" if there are none."""
    shown = [result for result in results if not (math.isnan(result.named[0]) and math.isnan(result.rebuilt))]
    if not shown:
        return ""

    def paint(figure: Figure) -> None:
        axes = rows(figure.subplots(), [result.name for result in shown])
        axes.set_xlim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        for y, result in enumerate(shown):
            axes.plot(result.named, [y, y], color=GREY, linewidth=1)
            for value, mark in zip((*result.named, rebuilt_share(result)), (_LABELS, RING, _FEATURES), strict=True):
                axes.plot(value, y, **mark)
        legend(figure, _MEANINGS)

    size = (720, 70 + 22 * len(shown))
    return picture(size, paint, title=TITLE, about="; ".join(_spoken(result) for result in shown))


def rebuilt_share(result: ProtocolResults) -> float:
    """Share of the columns' variance that the server reconstructs, 0 to 1; NaN where no message has a line per row."""
    return math.nan if math.isnan(result.rebuilt) else max(0.0, 1 - result.rebuilt)


def _spoken(result: ProtocolResults) -> str:
    named = "no labels to be read" if math.isnan(result.named[0]) else f"{result.named[0]:.0%} of labels"
    made = "no rows to rebuild" if math.isnan(result.rebuilt) else f"{rebuilt_share(result):.0%} of the variance"
    return f"{result.name}: {named}, {made}"
