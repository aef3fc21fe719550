"""explain.html: which party is worth its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
from colonnade.reports.html.charts import Axis, Bar, Say, point_map, row_chart
from colonnade.reports.html.markup import Html
from colonnade.reports.html.page import render
from colonnade.reports.words import amount
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
    """The self-contained page."""
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
    """A bar from 0 for each party, the most important first; with its interval where the party itself is missing."""
    bars = []
    for party in found.ranked:
        value = left(party)
        low, high = (value is party.missing and party.interval) or (None, None)
        lost = 0.0 if value is None else found.clean - value
        bars.append(Bar(party.name, lost, lost_words(found.measure, lost, unit=False), low, high, _colour(party)))
    measure = MEASURES[found.measure]
    unit = measure if found.measure in ("auc", "r2") else f"points of {measure}"
    caption = f"{unit[:1].upper()}{unit[1:]} lost {how}"
    return row_chart(bars, Axis("", lambda value: lost_words(found.measure, value, unit=False)), caption=caption)


def _costs(found: Findings) -> list[Html]:
    """Charts of what is known of the parties' costs, in the order of the first chart."""
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
