"""The page and the console's lines of `colonnade bins`: a party's bins of a scorecard, for its own eyes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from colonnade.common.data.columns.distribution import level, stability
from colonnade.reports.html.curves import svg, words
from colonnade.reports.html.frame import contents, facts, folded, frame, section, table
from colonnade.reports.html.markup import Html, tag, written
from colonnade.reports.scorecard.page import print_table
from colonnade.reports.words import counted

Record = Mapping[str, Any]
"""A party's part of a scorecard, as `colonnade export` writes it."""

_HEADS = ("bin", "people", "share", "bads", "bad rate", "WOE", "IV", "points")
_COLUMNS = ("column", "IV", "bins", "coefficient", "points from", "to", "PSI", "")
_DRAWN = 60  # columns that are drawn
_WIDTH, _ROW = 420, 22
_LEFT, _RIGHT = 174, 374  # between which bars lie
_LONGEST = 24  # characters of a label beside its bar
_WOE = (
    "The weight of evidence (WOE) of a bin is ln(share of the goods in it / share of the bads in it): bars to the "
    "right are safer than all people together, bars to the left riskier. All figures have one scale; numbers are bad "
    "rates."
)
_IV = (
    "The information value (IV) sums a column's bins. By convention less than .02 says nothing, .1 little, .3 and more "
    "much; more than .5 asks whether the column knows the outcome."
)
_SMOOTHED = "* A bin without a good or without a bad: its WOE is that of half a person more of each."


def show(console: Console, card: Record) -> None:
    for name, said in _about(card):
        console.print(f"{name}: {said}", soft_wrap=True)
    for column in _sorted(card):
        notes = filter(None, (f"IV {column['iv']:.4f}", psi_words(column), "" if column["kept"] else "left out"))
        print_table(console, _HEADS, _bins(card, column), f"{column['column']}: {', '.join(notes)}")
    if _any_smoothed(card):
        console.print(_SMOOTHED, soft_wrap=True)


def page(card: Record) -> str:
    columns = _sorted(card)
    rows = [_column(column) for column in columns]
    sections = [
        section("Columns", tag("p", _IV), table(_COLUMNS, rows, words=(0, 7), caption="By information value")),
        section("Shapes", tag("p", _WOE), _shapes(columns), tag("p", _SMOOTHED) if _any_smoothed(card) else Html()),
        section("Bins", *(
            folded(f"{column['column']}, IV {column['iv']:.3f}", table(_HEADS, _bins(card, column)))
            for column in columns
        )),
    ]  # fmt: skip
    return frame(f"{card['party']}: bins", [facts(_about(card)), contents(sections), *sections])


def _about(card: Record) -> list[tuple[str, str]]:
    kept = sum(column["kept"] for column in card["columns"])
    return [
        ("federation", f"{card['federation']}, round {card['round']}"),
        ("training rows", f"{card['rows']}, {card['bads']} of them bads"),
        ("columns", f"{counted(len(card['columns']), 'column')} with bins, {kept} kept"),
        ("points", f"{card['factor'] * np.log(2):.4g} double the odds; a person at the mean of a column has 0 of it"),
    ]


def _sorted(card: Record) -> list[Mapping[str, Any]]:
    return sorted(card["columns"], key=lambda column: -column["iv"])


def psi(column: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of the test rows in the column's bins against the training rows, and what chance exceeds once in 1000 columns;
    None if test rows were not counted.
    """
    if any("test" not in one for one in column["bins"]):
        return None
    before, now = (np.array([one[key] for one in column["bins"]], dtype=np.int64) for key in ("count", "test"))
    return stability(before, now)


def psi_words(column: Mapping[str, Any]) -> str:
    index = psi(column)
    return "" if index is None else f"PSI {index[0]:.4f}" + (f", {level(index)}" if level(index) else "")


def _column(column: Mapping[str, Any]) -> tuple[object, ...]:
    index, points = psi(column), [one["points"] for one in column["bins"]]
    said = "-" if index is None else f"{index[0]:.4f}"
    wrong = "wrong sign" if (column["coefficient"] or 0.0) > 0 else ""
    notes = ", ".join(filter(None, ("" if column["kept"] else "left out", wrong, level(index))))
    if not column["kept"]:
        return column["column"], f"{column['iv']:.4f}", len(points), "-", "-", "-", said, notes
    ends = (f"{end:.1f}" for end in (min(points), max(points)))
    return column["column"], f"{column['iv']:.4f}", len(points), f"{column['coefficient']:.3f}", *ends, said, notes


def _bins(card: Record, column: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (one["label"] + "*" * one["smoothed"], str(one["count"]), f"{one['count'] / card['rows']:.1%}",
         str(one["bads"]), f"{one['event_rate']:.1%}", f"{one['woe']:.3f}", f"{one['iv']:.4f}",
         "-" if one["points"] is None else f"{one['points']:.1f}")
        for one in column["bins"]
    ]  # fmt: skip


def _any_smoothed(card: Record) -> bool:
    return any(one["smoothed"] for column in card["columns"] for one in column["bins"])


def _shapes(columns: Sequence[Mapping[str, Any]]) -> Html:
    drawn = columns[:_DRAWN]
    most = max((abs(one["woe"]) for column in drawn for one in column["bins"]), default=0.0) or 1.0
    figures = [
        tag("figure", tag("figcaption", f"{column['column']}, IV {column['iv']:.3f}"), _shape(column, most))
        for column in drawn
    ]
    rest = len(columns) - len(drawn)
    more = tag("p", f"{counted(rest, 'column')} of less IV are not drawn.", class_="faint") if rest else Html()
    return Html(tag("div", *figures, class_="charts") + more)


def _shape(column: Mapping[str, Any], most: float) -> Html:
    """A bar for each bin, from the middle; `most` is the largest distance from 0."""
    middle, half = (_LEFT + _RIGHT) / 2, (_RIGHT - _LEFT) / 2
    height = _ROW * len(column["bins"]) + 4
    parts = [f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}"/>']
    for row, one in enumerate(column["bins"]):
        long = half * abs(one["woe"]) / most
        left, y = middle - (long if one["woe"] < 0 else 0), row * _ROW + 3
        label = one["label"] if len(one["label"]) <= _LONGEST else one["label"][: _LONGEST - 2] + ".."
        kind, full = "here" if one["woe"] >= 0 else "missed", written(f"{one['label']}: WOE {one['woe']:.3f}")
        parts += [
            words(_LEFT - 6, y + 13, label + "*" * one["smoothed"], "end"),
            f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{max(long, 1):.1f}" height="{_ROW - 4}">'
            f"<title>{full}</title></rect>",
            words(_WIDTH - 2, y + 13, f"{one['event_rate']:.1%}", "end"),
        ]
    about = "; ".join(f"{one['label']}: {one['woe']:.2f}" for one in column["bins"])
    return Html(svg(_WIDTH, height, parts, title=f"WOE of {column['column']}", about=about))
