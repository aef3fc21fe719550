"""Pictures of the documentation: accuracy against rounds, bytes, seconds and epsilon, and what attacks find."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from colonnade_lab.comparison.plan import ABOUT, PLAIN, UNITS, Unit
from colonnade_lab.comparison.protocol_results import ProtocolResults
from colonnade_lab.pages.plots import GREY, RING, DrawnLine, Mark, as_file, legend, lines, picture, rows
from colonnade_lab.papers.measures import Point, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LEAKS = "What attacks find: labels named by a party, features rebuilt by the server"
_LABELS: Mark = {"marker": "o", "color": "#d62728", "linestyle": ""}
_FEATURES: Mark = {"marker": "s", "color": "#1f77b4", "linestyle": ""}
_MEANINGS = {
    "training labels that a party names": _LABELS,
    "by chance": RING,
    "variance of the columns that the server rebuilds": _FEATURES,
}


def draw_leaks(results: Sequence[ProtocolResults]) -> str:
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
    return picture(size, paint, title=LEAKS, about="; ".join(_spoken(result) for result in shown))


def rebuilt_share(result: ProtocolResults) -> float:
    """Share of the columns' variance that the server reconstructs, 0 to 1; NaN where no message has a line per row."""
    return math.nan if math.isnan(result.rebuilt) else max(0.0, 1 - result.rebuilt)


def _spoken(result: ProtocolResults) -> str:
    named = "no labels to be read" if math.isnan(result.named[0]) else f"{result.named[0]:.0%} of labels"
    made = "no rows to rebuild" if math.isnan(result.rebuilt) else f"{rebuilt_share(result):.0%} of the variance"
    return f"{result.name}: {named}, {made}"


_DASHES = ("", "6 3", "2 3")
_LEAST_MB, _LEAST_SECONDS = 0.01, 1.0
_SPAN = (0.0, 1.0)
_UNKNOWN: Mapping[Unit, float] = MappingProxyType({})

Say = Callable[[float], str]


@dataclass(frozen=True)
class CurveFigure:
    """A picture with curves.

    Args:
        key: used in file names.
        foot: label of the x axis.
        drawn: one curve per protocol.
        across: formats an x value.
    """

    key: str
    title: str
    foot: str
    drawn: Sequence[DrawnLine]
    across: Say

    def file(self) -> str:
        return as_file(lines(self.drawn, _percent, self.across, span=_SPAN, foot=self.foot, title=self.title))


def figures(results: Sequence[ProtocolResults], deltas: Mapping[Unit, float] = _UNKNOWN) -> list[CurveFigure]:
    plain = [(result, _first(result, PLAIN)) for result in results]
    slow = [(result, _first(result, result.fastest[0] or PLAIN)) for result in results]
    made = [
        CurveFigure("rounds", "Test accuracy against rounds", "rounds", _curves(plain, lambda at: at.round), _plain),
        CurveFigure("bytes", "Test accuracy against bytes of training, both ways", "MB, in powers of ten",
               _curves(plain, lambda at: _log(at.bytes / 1e6, _LEAST_MB)), lambda x: f"{_power(x, _LEAST_MB)} MB"),
        CurveFigure("seconds", "Test accuracy against seconds with stragglers, each in its quicker way",
               "seconds of delays, in powers of ten", _curves(slow, lambda at: _log(at.seconds, _LEAST_SECONDS)),
               lambda x: f"{_power(x, _LEAST_SECONDS)} s"),
    ]  # fmt: skip
    made += [_noisy(results, unit, deltas) for unit in UNITS]
    return [figure for figure in made if figure.drawn]


def strokes(number: int) -> tuple[str, str]:
    """Matplotlib's colour and a dash of a protocol, by its place in the plan."""
    return f"C{number % 10}", _DASHES[number // 10]


def _curves(found: Sequence[tuple[ProtocolResults, RunRecord | None]], x: Callable[[Point], float]) -> list[DrawnLine]:
    drawn = []
    for number, (result, record) in enumerate(found):
        points = [(x(at), at.accuracy) for at in record.points] if record else []
        if kept := [point for point in points if point[0] > 0]:
            drawn.append(DrawnLine(result.name, kept, *strokes(number)))
    return drawn


def _noisy(results: Sequence[ProtocolResults], unit: Unit, deltas: Mapping[Unit, float]) -> CurveFigure:
    drawn = []
    for number, result in enumerate(results):
        epsilons = sorted(float(name.partition("-")[2]) for name in result.found if name.startswith(f"{unit}-"))
        points = [(math.log2(each), result.under(unit, each) / 100) for each in epsilons]
        if points:
            drawn.append(DrawnLine(result.name, points, *strokes(number)))
    title, delta = f"Test accuracy against epsilon of {ABOUT[unit]}", deltas.get(unit)
    foot = "epsilon" if delta is None else f"epsilon at delta {delta:g}"
    return CurveFigure(f"epsilon-{unit}", title, foot, drawn, lambda x: f"{2**x:.3g}")


def _first(result: ProtocolResults, condition: str) -> RunRecord | None:
    records = result.found.get(condition, ())
    return records[0] if records else None


def _log(value: float, least: float) -> float:
    return math.log10(value / least) if value > 0 else 0.0


def _power(x: float, least: float) -> str:
    value = least * 10**x
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _plain(x: float) -> str:
    return f"{x:.10g}"
