"""The pictures of a table: cells in per cent as dots, cells in bytes as bars, claims run by run."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from colonnade_lab.pages.plots import GREY, RING, Mark, as_file, legend, picture, rows
from colonnade_lab.papers.measures import unit
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FILLS: Mapping[str | None, str] = {
    "agrees": "#0072b2", "better": "#009e73", "worse": "#d55e00", "differs": "#d55e00", "undecided": "#e69f00",
    "holds": "#0072b2", "not reached": "#cc79a7", "reversed": "#d55e00", "open": "#e69f00", None: GREY,
}  # fmt: skip
"""By verdict or outcome: colours that those tell apart who see no red or no green."""

_WIDTH, _LETTERS = 720, 80
_PALE = "#a5aeb8"
_VERDICTS = ("agrees", "better", "worse", "undecided")
_WAITS = "not run yet"


def dots(title: str, cells: Sequence[CellStanding]) -> str:
    """Draws cells in per cent, at least one; lines are our 95 % interval and the paper's deviation."""

    def paint(figure: Figure) -> None:
        axes = rows(figure.subplots(), [one.label for one in cells])
        _limit(axes, (value for one in cells for value in (one.mean, one.cell.paper)), "%")
        for y, one in enumerate(cells):
            ours = _dot(one.verdict)
            axes.plot([one.cell.paper, one.mean], [y, y], color=_PALE, linewidth=1)
            axes.errorbar(one.mean, y, xerr=_half(one), elinewidth=3, **ours)
            axes.errorbar(one.cell.paper, y, xerr=one.cell.spread, elinewidth=1, capsize=4, **RING)
        legend(figure, {"the paper": RING} | {f"ours, {said}": _dot(said) for said in _VERDICTS})

    return picture((_WIDTH, 70 + 20 * len(cells)), paint, title=title, about=_spoken(cells))


def bars(title: str, cells: Sequence[CellStanding], sign: str) -> str:
    """Draws cells in MB or MiB, at least one; a cost that was never reached goes to the right edge."""

    def paint(figure: Figure) -> None:
        axes = rows(figure.subplots(), [one.label for one in cells])
        low, high = _limit(axes, (value for one in cells for value in (one.mean, one.cell.paper)), sign)
        for y, one in enumerate(cells):
            pairs = ((-0.2, one.cell.paper, _PALE, one.paper_words), (0.2, one.mean, FILLS[one.verdict], one.words))
            for down, value, fill, said in pairs:
                drawn = axes.barh(y + down, min(value, high) - low, 0.36, low, color=fill)
                axes.bar_label(drawn, [said], padding=4)
        squares = {"the paper": _PALE} | {f"ours, {said}": FILLS[said] for said in _VERDICTS}
        legend(figure, {said: {"marker": "s", "color": fill, "linestyle": ""} for said, fill in squares.items()})

    return picture((_WIDTH, 70 + 32 * len(cells)), paint, title=title, about=_spoken(cells))


def orders(title: str, claims: Sequence[ClaimStanding]) -> str:
    """Draws claims, at least one, whose runs share one unit each."""
    said = [textwrap.wrap(one.claim.text, _LETTERS) for one in claims]
    heights = [20 * len(one.values) + 15 * len(lines) + 44 for one, lines in zip(claims, said, strict=True)]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(claims), squeeze=False, gridspec_kw={"height_ratios": heights})
        for one, lines, axes in zip(claims, said, panels.flat, strict=True):
            axes.set_title("\n".join(lines))
            axes.set_title(one.outcome or _WAITS, loc="right")
            _claim(axes, one)
        first = {
            "to be ahead, and is": "holds",
            "ahead by too little": "not reached",
            "behind": "reversed",
            "open": "open",
        }
        meanings = {said: _dot(outcome) for said, outcome in first.items()} | {"the others": RING}
        legend(figure, meanings)

    about = "; ".join(f"{one.claim.text}: {one.words}, {one.outcome or _WAITS}" for one in claims)
    return picture((_WIDTH, 40 + sum(heights)), paint, title=title, about=about)


def _claim(axes: Axes, one: ClaimStanding) -> None:
    rows(axes, list(one.values))
    first = next(iter(one.values))
    _, high = _limit(axes, one.values.values(), unit(one.claim.measures[first]))
    for y, (run, value) in enumerate(one.values.items()):
        mark = _dot(one.outcome) if run == first else RING
        axes.plot(min(value, high), y, clip_on=False, **mark)
        axes.annotate(one.said(run), (1, y), (10, 0), axes.get_yaxis_transform(), "offset points", va="center")


def limits(values: Iterable[float], sign: str) -> tuple[float, float]:
    """Limits of an axis: per cent end at 100, others at powers of ten, since they differ by factors."""
    finite = [value for value in values if math.isfinite(value)]
    if sign == "%":
        return max(0.0, 5 * math.floor((min(finite, default=0.0) - 1) / 5)), 100.0
    above = [value for value in finite if value > 0] or [1.0]
    least, most = math.floor(math.log10(0.9 * min(above))), math.ceil(math.log10(max(above)))
    return 10.0**least, 10.0 ** max(most, least + 1)


def _limit(axes: Axes, values: Iterable[float], sign: str) -> tuple[float, float]:
    ends = limits(values, sign)
    if sign != "%":
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xlim(ends)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g} {sign}".strip())
    return ends


def _dot(verdict: str | None) -> Mark:
    return {"marker": "o", "color": FILLS[verdict], "linestyle": ""}


def _half(one: CellStanding) -> float | None:
    high = one.interval.high
    return None if high is None else high - one.mean


def _spoken(cells: Sequence[CellStanding]) -> str:
    return "; ".join(one.spoken for one in cells)


_BYTES = ("MB", "MiB")


@dataclass(frozen=True)
class Picture:
    """A picture as a separate file; `about` follows the table's name and is "" for the cells in per cent."""

    file: str
    about: str
    text: str


def pictures(paper: str, standing: TableStanding) -> Iterator[Picture]:
    file, name, title = f"{paper}-{standing.name}", f"{paper}/{standing.name}", standing.table.title
    if cells := [one for one in _run(standing, "%") if math.isfinite(one.mean)]:
        yield Picture(f"{file}.svg", "", as_file(dots(f"{name}: {title}", cells)))
    for sign in _BYTES:
        if cells := _run(standing, sign):
            drawn = bars(f"{name}, in {sign}: {title}", cells, sign)
            yield Picture(f"{file}-{sign.lower()}.svg", f", in {sign}", as_file(drawn))
    if claims := [one for one in standing.claims if _comparable(one)]:
        drawn = orders(f"{name}, what it says: {title}", claims)
        yield Picture(f"{file}-claims.svg", ", what it says", as_file(drawn))


def _run(standing: TableStanding, sign: str) -> list[CellStanding]:
    return [one for one in standing.cells if unit(one.cell.measure) == sign and not math.isnan(one.mean)]


def _comparable(one: ClaimStanding) -> bool:
    some = any(not math.isnan(value) for value in one.values.values())
    return some and len({unit(measure) for measure in one.claim.measures.values()}) == 1
