"""The page and the console's lines of `colonnade bins`: a party's bins of a scorecard, for the party alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.data.columns.distribution import level, stability
from colonnade.reports.console.screen import Screen
from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.page import Html, render, tile
from colonnade.reports.scorecard.page import print_table
from colonnade.reports.words import counted, listed

Record = Mapping[str, Any]
"""A party's part of a scorecard, as `colonnade export` writes it."""

_HEADS = ("bin", "people", "share", "bads", "bad rate", "WOE", "IV", "points")
_COLUMNS = ("column", "IV", "bins", "coefficient", "points from", "to", "PSI", "")
_DRAWN = 60  # columns that are drawn
_SUSPICIOUS = 0.5  # IV, by convention
TEMPLATES = Path(__file__).parent / "templates"
_SMOOTHED = "* A bin without a good or without a bad: its WOE is that of half a person more of each."


def show_bins(console: Screen, card: Record) -> None:
    for name, said in _about(card):
        console.say(f"{name}: {said}")
    for column in _sorted(card):
        notes = filter(None, (f"IV {column['iv']:.4f}", psi_words(column), "" if column["kept"] else "left out"))
        print_table(console, _HEADS, _bins(card, column), f"{column['column']}: {', '.join(notes)}")
    if _any_smoothed(card):
        console.say(_SMOOTHED)


def bins_page(card: Record) -> str:
    columns = _sorted(card)
    most = max((abs(one["woe"]) for column in columns for one in column["bins"]), default=0.0) or 1.0
    drawn = columns[:_DRAWN]
    values = {
        "title": f"{card['party']}: bins",
        "said": _headline(card, columns),
        "cards": _cards(card, columns),
        "information": _information(columns),
        "heads": _COLUMNS,
        "rows": [_column(column) for column in columns],
        "shapes": [_shape(column, most) for column in drawn],
        "rest": counted(len(columns) - len(drawn), "column") if len(columns) > len(drawn) else "",
        "bin_heads": _HEADS,
        "tables": [(f"{column['column']}, IV {column['iv']:.3f}", _bins(card, column)) for column in columns],
        "smoothed": _SMOOTHED if _any_smoothed(card) else "",
        "facts": _about(card),
    }
    return render("bins.html", values, beside=TEMPLATES)


def _headline(card: Record, columns: Sequence[Mapping[str, Any]]) -> str:
    """The column that separates best, and its meaning."""
    if not columns:
        return f"{card['party']} has no column with bins."
    first = columns[0]
    risky = max(first["bins"], key=lambda one: one["event_rate"])
    whole = card["bads"] / card["rows"]
    said = (
        f"{first['column']} separates best (IV {first['iv']:.2f}): {risky['event_rate']:.1%} of the people with "
        f"{risky['label']} are bads, of all {whole:.1%}."
    )
    wrong = [column["column"] for column in columns if (column["coefficient"] or 0.0) > 0]
    return said + (f" Points of {listed(wrong)} have the wrong sign." if wrong else "")


def _cards(card: Record, columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    kept = [column for column in columns if column["kept"]]
    ends = {column["column"]: [one["points"] for one in column["bins"]] for column in kept}
    spans = {name: max(points) - min(points) for name, points in ends.items() if None not in points}
    widest = max(spans, key=spans.__getitem__, default="")
    suspect = [column["column"] for column in columns if column["iv"] > _SUSPICIOUS]
    indices = {column["column"]: index for column in columns if (index := psi(column)) is not None}
    moved = [name for name, index in indices.items() if level(index)]
    rows = f"{card['rows']} training rows, {card['bads']} of them bads"
    span = f"{spans[widest]:.0f} points from its worst bin to its best" if widest else ""
    known = f"IV above {_SUSPICIOUS:g}, which asks whether they know the outcome: {listed(suspect)}" if suspect else ""
    tiles = [
        tile("Columns", f"{len(kept)} of {len(columns)} kept", rows),
        tile("Decides most", widest or "none", span),
        tile("Too good?", counted(len(suspect), "column"), known, tone="warn" if suspect else "good"),
    ]
    if indices:
        said = "in the test rows, beyond chance" if moved else "test rows are as the training rows"
        tiles.append(tile("Shifted", listed(moved, 2) or "none", said, tone="warn" if moved else "good"))
    return tiles


def _information(columns: Sequence[Mapping[str, Any]]) -> Html:
    bars = [
        Bar(column["column"], column["iv"], f"{column['iv']:.3f}" + ("" if column["kept"] else ", left out"),
            colour=1 if column["kept"] else 6)
        for column in columns
    ]  # fmt: skip
    return row_chart(bars, Axis("", lambda value: f"{value:.2f}"), caption="Information value of each column")


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
    """Stability index of the test rows in the column's bins against the training rows, and its 99.9 % quantile by
    chance.

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


def _shape(column: Mapping[str, Any], most: float) -> Html:
    """A bar for each bin, from 0; `most` is the largest distance from 0."""
    bars = [
        Bar(
            one["label"] + "*" * one["smoothed"],
            one["woe"],
            f"{one['event_rate']:.1%}",
            colour=1 if one["woe"] >= 0 else 2,
        )
        for one in column["bins"]
    ]
    return row_chart(
        bars,
        Axis("WOE", lambda value: f"{value:.1f}", (-most, most)),
        caption=f"{column['column']}, IV {column['iv']:.3f}",
    )
