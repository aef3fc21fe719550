"""explain.html: which party is worth its cost; and a page of a party's shape functions, for the party alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.shapes import COARSE
from colonnade.reports.explanation.findings import Findings, PartyFindings
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.explanation.words import (
    CHANCE,
    MEASURES,
    cards,
    columns_of,
    headline,
    lost_words,
    of_heads,
    second_opinion,
    sentences,
)
from colonnade.reports.html.charts import COLOURS, Axis, Bar, Say, Trend, label, line_chart, point_map, row_chart, svg
from colonnade.reports.html.page import Html, render, tile, written
from colonnade.reports.words import amount, counted, listed
from colonnade.server.training.trees.gradients import ScoreSum

_TEMPLATES = Path(__file__).parent / "templates"

_TOLD, _UNTOLD = 1, 6  # colours
_NOISED = "with noise on the party's columns"

_PAPER = (
    "The paper that ranks by norms (VIMADMM, Xie et al. 2024, Figure 3) trains ten epochs with a weight decay of .005, "
    "under which heads without use shrink; shorter or with less decay a norm is mostly that of the draw."
)
_GAIN = (
    "The gain of a split is what it takes off the loss of the training rows, by the loss's first two derivatives. Gain "
    "favours columns with many values, and says nothing of rows that were not trained on. In a party's own folder "
    "explain.json has its columns and splits by name."
)


@dataclass(frozen=True)
class Maps:
    """t-SNE maps of the same rows: `points`, float (rows, 2), by title; `classes`, int64 (rows,)."""

    points: Mapping[str, Tensor]
    classes: Tensor


def html(trained: Trained, found: Findings, maps: Maps | None) -> str:
    columns = columns_of(found)
    rows = [(party.name, str(rank), *(say(party) for _, say in columns)) for rank, party in enumerate(found.ranked, 1)]
    values: dict[str, Any] = {
        **_first_screen(trained, found),
        "sentences": sentences(trained, found),
        "head": ("party", "rank", *(name for name, _ in columns)),
        "rows": rows,
        "costs": _costs(found),
        "opinion": second_opinion(found),
        "opinion_chart": _opinion(found),
        "opinion_said": _opinion_words(trained, found),
        "noise": None if found.noise_lost is None else _lost(found, _NOISED, lambda party: party.noised),
        "sigma": f"{found.sigma:g}",
        "maps": [] if maps is None else _maps(trained, maps),
    }
    return render("explanation.html", values, beside=_TEMPLATES)


def short_html(trained: Trained, found: Findings) -> str:
    """The first screen alone, for notebooks."""
    return render("explanation_first.html", _first_screen(trained, found), beside=_TEMPLATES)


def _first_screen(trained: Trained, found: Findings) -> dict[str, Any]:
    """Headline, cards and first chart."""
    return {
        "title": f"{trained.config.federation.id}: how much each party matters",
        "said": headline(found),
        "cards": cards(trained, found),
        "chart": _lost(found, "without the party", lambda party: party.missing),
        "chart_said": CHANCE,
    }


def _opinion_words(trained: Trained, found: Findings) -> str:
    if trained.forest is not None:
        return _GAIN
    return "" if isinstance(trained.joint, ScoreSum) else f"{of_heads(found)} {_PAPER}"


def _lost(found: Findings, how: str, left: Callable[[PartyFindings], float | None]) -> Html:
    """A bar from 0 for each party, the most important first; with its interval if the party itself is missing."""
    bars = []
    for party in found.ranked:
        value = left(party)
        low, high = party.interval if value is party.missing else (None, None)
        lost = 0.0 if value is None else found.clean - value
        bars.append(Bar(party.name, lost, lost_words(found.measure, lost, unit=False), low, high, _colour(party)))
    measure = MEASURES[found.measure]
    unit = measure if found.measure in ("auc", "r2") else f"points of {measure}"
    caption = f"{unit[:1].upper()}{unit[1:]} lost {how}"
    return row_chart(bars, Axis("", lambda value: lost_words(found.measure, value, unit=False)), caption=caption)


def _costs(found: Findings) -> list[Html]:
    """Charts of the parties' known costs, in the order of the first chart."""
    ranked, charts = found.ranked, []
    if all(party.sent is not None for party in ranked):
        sent = {party: float(party.sent or 0) for party in ranked}
        charts.append(_bars(sent, amount, "Bytes of tensors that left the party"))
    if any(party.awaited for party in ranked):
        awaited = {party: party.awaited for party in ranked}
        charts.append(_bars(awaited, lambda value: f"{value:.1f} s", "Seconds the others waited for it"))
    return charts


def _opinion(found: Findings) -> Html | None:
    """The other ranking, in the order of the first chart."""
    kinds: tuple[tuple[str, Callable[[PartyFindings], float | None], Say], ...] = (
        ("Growth of the norm of each party's head", _growth, lambda value: f"{value:+.2%}"),
        ("Norm of each party's head", lambda party: party.norm, lambda value: f"{value:.3f}"),
        ("Share of the gain of all splits", lambda party: party.gain, lambda value: f"{value:.1%}"),
        ("Mean distance of its scores from their mean", lambda party: party.size, lambda value: f"{value:.3f}"),
    )
    for caption, of, say in kinds:
        values = {party: value for party in found.ranked if (value := of(party)) is not None}
        if len(values) == len(found.parties):
            return _bars(values, say, caption)
    return None


def _growth(party: PartyFindings) -> float | None:
    return None if party.growth is None else party.growth - 1


def _bars(values: Mapping[PartyFindings, float], say: Say, caption: str) -> Html:
    bars = [Bar(party.name, value, say(value), colour=_colour(party)) for party, value in values.items()]
    return row_chart(bars, Axis("", say), caption=caption)


def _colour(party: PartyFindings) -> int:
    return _TOLD if party.told else _UNTOLD


def _maps(trained: Trained, maps: Maps) -> list[tuple[str, Html]]:
    classes = trained.config.federation.classes
    names = [str(number) for number in range(classes)] if isinstance(classes, int) else list(classes)
    present = [(number, name) for number, name in enumerate(names) if bool((maps.classes == number).any())]

    def groups(points: Tensor) -> dict[str, list[tuple[float, float]]]:
        return {name: [(x, y) for x, y in points[maps.classes == number].tolist()] for number, name in present}

    return [(title, point_map(groups(torch.as_tensor(points)), title=title)) for title, points in maps.points.items()]


_MOST = 30  # pictures
_WORDS = 10  # a picture, the most frequent ones
_CELL = 26  # pixels

Shape = Mapping[str, Any]


def shapes_html(title: str, columns: Sequence[Shape], pairs: Sequence[Shape]) -> str:
    """The self-contained page.

    Args:
        columns, pairs: as from `ShapeSum.described`, the most important first.
    """
    named = [(one["column"], one) for one in columns] + [(" x ".join(one["columns"]), one) for one in pairs]
    drawn = sorted((one for one in named if one[1]["importance"]), key=lambda each: -each[1]["importance"])
    span = max((abs(_points(one)).max() for _, one in drawn), default=0.0) * 1.08 or 1.0
    bars = [Bar(name, one["importance"], f"{one['importance']:.3f}") for name, one in drawn[:_MOST]]
    values = {
        "title": title,
        "said": _headline(drawn, span / 1.08),
        "cards": _cards(named, drawn),
        "importance": row_chart(bars, Axis("", lambda value: f"{value:.2f}"), caption="Importance of each column"),
        "pictures": [_picture(name, one, span) for name, one in drawn[:_MOST]],
        "rest": max(len(drawn) - _MOST, 0),
        "scores": len(columns[0]["mean"]) if columns else 1,
    }
    return render("shapes.html", values, beside=_TEMPLATES)


def _headline(drawn: Sequence[tuple[str, Shape]], most: float) -> str:
    """The most important column, and its share."""
    if not drawn:
        return "No column of this party tells anything of a row: all its shapes are flat."
    name, one = drawn[0]
    points = _points(one)
    share = one["importance"] / sum(each["importance"] for _, each in drawn)
    ends = f"between {points.min():+.2f} and {points.max():+.2f}"
    widest = "" if abs(points).max() >= most else f"; the widest single step, {most:.2f}, is of another column"
    return f"{name} decides most: it moves a score {ends}, {share:.0%} of all that this party's columns do{widest}."


def _cards(named: Sequence[tuple[str, Shape]], drawn: Sequence[tuple[str, Shape]]) -> list[dict[str, Any]]:
    total, enough, summed = sum(one["importance"] for _, one in drawn), 0, 0.0
    while enough < len(drawn) and summed < 0.8 * total:
        summed += drawn[enough][1]["importance"]
        enough += 1
    flat, pairs = [name for name, one in named if not one["importance"]], sum("cells" in one for _, one in named)
    return [
        tile("Columns", str(len(named) - pairs), f"and {counted(pairs, 'pair')} of them" if pairs else ""),
        tile("Do four fifths", counted(enough, "column"), listed([name for name, _ in drawn[:enough]])),
        tile("Add nothing", str(len(flat)), listed(flat) or "every column adds to some score"),
    ]  # fmt: skip


def _points(shape: Shape) -> NDArray[np.float64]:
    """Points by bin and score, less their means: (bins, scores)."""
    found: NDArray[np.float64] = np.asarray(shape["points"]) - np.asarray(shape["mean"])
    return found


def _picture(name: str, shape: Shape, span: float) -> tuple[str, Html]:
    """A title and the picture; for words a table."""
    title = f"{name} ({shape['importance']:.3f})"
    if "cells" in shape:
        return title, _pair(name, shape, span)
    return (title, _numbers(name, shape, span)) if "cuts" in shape else ("", _words(title, shape, span))


def _numbers(name: str, shape: Shape, span: float) -> Html:
    """Steps over the bins, and a dot for missing values with their own bin."""
    points, cuts = _points(shape), shape["cuts"]
    bins, drawn = len(cuts) + 1, []
    for score in range(points.shape[1]):
        steps = [(float(bin + side), float(points[bin, score])) for bin in range(bins) for side in (0, 1)]
        drawn.append(Trend(f"score {score}" if points.shape[1] > 1 else name, steps, score + 1))
        if shape["missing"] >= bins:
            drawn.append(Trend("", [(bins + 0.5, float(points[shape["missing"], score]))], score + 1))

    def say(place: float) -> str:
        if place > bins:
            return "missing"
        if not (place == round(place) and 1 <= place <= len(cuts)):
            return ""
        cut = cuts[round(place) - 1]
        return f"{cut:,.0f}" if abs(cut) >= 1000 else f"{cut:.3g}"

    about = f"from {points[:bins].min():+.3f} to {points[:bins].max():+.3f} over {counted(bins, 'bin')}"
    if shape["missing"] >= bins:
        about += f"; missing {points[shape['missing'], 0]:+.3f}"
    end = bins + (1.0 if shape["missing"] >= bins else 0.0)
    up = Axis("adds", lambda value: f"{value:+.2g}" if value else "0", (-span, span))
    return line_chart(drawn, Axis("cuts between bins", say, (0.0, end)), up, title=name, about=about)


def _words(title: str, shape: Shape, span: float) -> Html:
    """A bar for each of the most frequent words, for the others and for missing values, if they have bins."""
    points, words = _points(shape), shape["words"]
    places = {word: place for place, word in enumerate(words[:_WORDS])}
    for place, name in ((shape["others"], "others"), (shape["missing"], "missing")):
        if place >= len(words):
            places.setdefault(name, place)
    several = points.shape[1] > 1
    bars = [
        Bar(f"{name}, score {score}" if several else name, float(points[place, score]),
            f"{points[place, score]:+.2f}", colour=score % COLOURS + 1)
        for name, place in places.items() for score in range(points.shape[1])
    ]  # fmt: skip
    return row_chart(bars, Axis("", lambda value: f"{value:+.2g}", (-span, span)), caption=title)


def _pair(name: str, shape: Shape, span: float) -> Html:
    """The first score of each cell of both columns' groups; stronger colours for larger contributions."""
    points, cells = _points(shape)[:, 0], np.asarray(shape["cells"]).reshape(COARSE, COARSE)
    first, second = (max(groups) + 1 for groups in shape["groups"])
    parts = []
    for across in range(first):
        for up in range(second):
            value = float(points[cells[across, up]])
            x, y = 60 + across * _CELL, 10 + (second - 1 - up) * _CELL
            kind, side = "f1" if value >= 0 else "f2", _CELL - 1
            parts.append(
                f'<rect class="{kind}" x="{x}" y="{y}" width="{side}" height="{side}" '
                f'style="opacity:{min(abs(value) / span, 1):.2f}"><title>{value:+.3f}</title></rect>'
            )
    wide, high = first * _CELL, second * _CELL
    parts.append(label(60, high + 28, f"{shape['columns'][0]}, groups of bins, rising", "start", faint=True))
    parts.append(
        f'<text class="faint" transform="rotate(-90 46 {10 + high})" x="46" y="{10 + high}">'
        f"{written(shape['columns'][1])}</text>"
    )
    about = f"from {points.min():+.3f} to {points.max():+.3f}"
    return svg((max(wide + 70, 320), high + 36), parts, title=name, about=about, kind="map")
