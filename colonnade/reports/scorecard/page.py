"""The page and the console's lines of `colonnade scorecard`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.data.columns.distribution import level
from colonnade.common.text import plain
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import Screen
from colonnade.reports.html.charts import Axis, Bar, Mark, Trend, line_chart, row_chart
from colonnade.reports.html.page import Html, render, tile
from colonnade.reports.records.run import model_round
from colonnade.reports.scorecard.findings import ScoreFindings, suppressed_words
from colonnade.reports.words import counted, percent
from colonnade.server.training.metrics import gains
from colonnade.server.training.metrics.bands import FOUR_FIFTHS, Disparities

TEMPLATES = Path(__file__).parent / "templates"

_APPROVED, _REFUSED = 1, 2  # colours
_BINS = 25  # of the score's distribution
_POINTS = 200  # of a curve
_BANDS = ("people", "goods", "bads", "bad rate", "odds", "gain", "lift")
_CUTS = ("approved", "bad rate", "bads refused", "goods refused", "KS")
GROUPS = ("group", "people", "bad rate", "approved", "impact", "TPR", "FPR", "AUC")


def lines(found: ScoreFindings) -> list[tuple[str, str]]:
    """Names and values, of the whole."""
    rows, scale, ks = found.rows, found.scale, found.ks
    auc = gains.auc(found.risk, found.bads)
    model = model_round(found.run.summary)
    said = [
        *([("model", f"of round {model}")] if model is not None and found.own else []),
        ("rows", f"{counted(len(rows.ids), f'{found.part} row')}, {int(found.bads.sum())} of them bads"),
        *([("left out", found.left_out)] if found.left_out else []),
        ("bads are", f"{found.bad!r}, the second class; goods are the first"),
        ("KS", f"{ks[0]:.4f}, reached at {scale.say(ks[1])}"),
        ("Gini", f"{2 * auc - 1:.4f} (AUC {auc:.4f})"),
    ]
    if scale.pdo:
        said.append((
            "points", f"{plain(scale.points)} are odds of {plain(scale.odds)} goods a bad, {plain(scale.pdo)} more "
            f"double them: {scale.offset:.2f} - {scale.factor:.4f} log-odds of a bad",
        ))  # fmt: skip
    if found.before is not None:
        part, index = found.before
        word = {"": "stable, or no more than chance", "moved": "moved", "shifted": "shifted"}[level(index)]
        rows_of = "training" if part == "train" else part
        said.append((
            "PSI", f"{index[0]:.4f} against the {rows_of} rows: {word} (chance: up to {index[1]:.3f})"
        ))  # fmt: skip
    least, why = found.cut_off
    one = found.outcome
    said += [
        ("cut-off", f"{scale.say(least)}, {why}"),
        ("approved", f"{percent(one.approval_rate)} of the people; bad rate {_share(one.approved_bad_rate)} "
         f"(of all people {percent(one.bad_rate)})"),
        ("refused", f"{_share(one.true_positive_rate)} of the bads, {_share(one.false_positive_rate)} of the goods"),
    ]  # fmt: skip
    return said


def show(console: Screen, found: ScoreFindings) -> None:
    whole = Grid()
    for name, words in lines(found):
        whole.add_row(name, words)
    console.show(whole)
    print_table(console, [found.scale.name, *_BANDS], _bands(found), "Bands, the riskiest first")
    print_table(console, [found.scale.name, *_CUTS], _cuts(found), "If a band and riskier ones are refused")
    if found.groups is not None:
        if found.groups.shown:
            print_table(console, GROUPS, group_rows(found.groups), f"By group, at {found.scale.say(found.cut_off[0])}")
        for line in (*suppressed_words(found.groups), *found.notes):
            console.say(line)


def print_table(console: Screen, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    made = Grid(*heads, title=f"\n{title}")
    for row in rows:
        made.add_row(*row)
    console.show(made)


def page(found: ScoreFindings) -> str:
    values = {
        "title": f"{found.run.summary.get('federation') or found.run.name}: scores",
        "said": headline(found),
        "cards": _cards(found),
        "facts": lines(found),
        "bands_chart": _bands_chart(found),
        "charts": [*_curves(found), _gain(found)],
        "bands_head": [found.scale.name, *_BANDS],
        "bands": _bands(found),
        "cuts_head": [found.scale.name, *_CUTS],
        "cuts": _cuts(found),
        "groups": found.groups,
        "cut_off": found.scale.say(found.cut_off[0]),
        "groups_head": GROUPS,
        "groups_rows": [] if found.groups is None else group_rows(found.groups),
        "groups_chart": None if found.groups is None else _approved(found.groups),
        "notes": [] if found.groups is None else [*suppressed_words(found.groups), *found.notes],
    }
    return render("scorecard.html", values, beside=TEMPLATES)


def headline(found: ScoreFindings) -> str:
    """The effect of the cut-off on people, in a sentence."""
    one, (least, _) = found.outcome, found.cut_off
    return (
        f"A cut-off at {found.scale.say(least)} refuses {_share(one.true_positive_rate)} of the bads and "
        f"{_share(one.false_positive_rate)} of the goods; of those approved {_share(one.approved_bad_rate)} are bads, "
        f"of all {len(found.rows.ids)} people {percent(one.bad_rate)}."
    )


def _cards(found: ScoreFindings) -> list[dict[str, Any]]:
    one, (least, why), auc = found.outcome, found.cut_off, gains.auc(found.risk, found.bads)
    ks, at = found.ks
    tiles = [
        tile("Separation", f"KS {ks:.3f}", f"reached at {found.scale.say(at)}", f"Gini {2 * auc - 1:.3f}"),
        tile("Cut-off", found.scale.say(least), why),
        tile("Approved", percent(one.approval_rate), f"bad rate {_share(one.approved_bad_rate)}",
             f"without a model {percent(one.bad_rate)}"),
    ]  # fmt: skip
    if found.before is not None:
        part, index = found.before
        word, tone = {"": ("stable", "good"), "moved": ("moved", "warn"), "shifted": ("shifted", "bad")}[level(index)]
        against = f"PSI {index[0]:.3f} against the {'training' if part == 'train' else part} rows"
        tiles.append(tile("Stability", word, against, f"chance: up to {index[1]:.3f}", tone=tone))
    shown = found.groups.shown if found.groups is not None else {}
    impacts = {name: impact for name in shown if found.groups and (impact := found.groups.impact(name)) is not None}
    if impacts:
        name = min(impacts, key=impacts.__getitem__)
        low = impacts[name] < FOUR_FIFTHS
        verdict = f"below {FOUR_FIFTHS:g}: it asks for a reason" if low else "within four fifths"
        tiles.append(tile("Groups", f"{name}: {impacts[name]:.2f}", "the lowest approval, over the highest", verdict,
                          tone="bad" if low else "good"))  # fmt: skip
    return tiles


def _bands_chart(found: ScoreFindings) -> Html:
    each = found.bands
    refused = found.cut_off[0]
    bars = [
        Bar(name, rate, f"{rate:.1%}", colour=_REFUSED if low >= refused else _APPROVED)
        for name, rate, low in zip(_ranges(found), each.bad_rate.tolist(), each.low.tolist(), strict=True)
    ]
    whole = {f"all: {percent(found.outcome.bad_rate)}": found.outcome.bad_rate}
    return row_chart(bars, Axis(found.scale.name, percent), caption="Bad rate by band, the riskiest first",
                     references=whole)  # fmt: skip


def _curves(found: ScoreFindings) -> list[tuple[str, Html]]:
    """Distributions of the scores of goods and bads, and the shares of both up to a score."""
    goods, bads = found.classes()
    low, high = float(min(goods.min(), bads.min())), float(max(goods.max(), bads.max()))
    at = np.unique([low, *np.quantile(np.concatenate([goods, bads]), np.linspace(0, 1, _POINTS)), high])
    edges = np.linspace(low, high, _BINS + 1)
    reached, spread = [], []
    for colour, (name, own) in enumerate((("goods", goods), ("bads", bads)), 1):
        up_to = np.searchsorted(np.sort(own), at, side="right") / len(own)
        reached.append(Trend(name, list(zip(at.tolist(), up_to.tolist(), strict=True)), colour))
        middle, share = (edges[1:] + edges[:-1]) / 2, np.histogram(own, edges)[0] / len(own)
        spread.append(Trend(name, list(zip(middle.tolist(), share.tolist(), strict=True)), colour))
    scale, (ks, place) = found.scale, found.ks
    across = Axis(scale.name, (lambda x: f"{x:.0f}") if scale.pdo else (lambda x: plain(x, 3)), (low, high))
    marks = [
        [Mark(float(scale.shown(np.array([risk]))[0]), said)]
        for risk, said in ((found.cut_off[0], "cut-off"), (place, f"KS {ks:.2f}"))
    ]
    titles = ("Distribution of scores by class", "Share of each class up to a score")
    axes = (Axis("of its class", percent), Axis("of its class", percent, (0.0, 1.0)))
    return [
        (title, line_chart(drawn, across, up, title=title, about=f"KS {ks:.4f} at {scale.say(place)}", marks=mark))
        for title, drawn, up, mark in zip(titles, (spread, reached), axes, marks, strict=True)
    ]


def _gain(found: ScoreFindings) -> tuple[str, Html]:
    """Share of bads among the riskiest people, compared with chance and a perfect score."""
    points = [(each["rows"], each["found"]) for each in gains.curve(found.risk, found.bads)]
    share, title = float(found.bads.mean()), "Bads found against people refused"
    drawn = [
        Trend("model", points, 1),
        Trend("best", [(0.0, 0.0), (share, 1.0), (1.0, 1.0)], 3, "7 3"),
        Trend("chance", [(0.0, 0.0), (1.0, 1.0)], 6, "2 3"),
    ]
    whole = (0.0, 1.0)
    about = "; ".join(f"the riskiest {percent(rows)} have {percent(got)} of the bads" for rows, got in points[2::4])
    return title, line_chart(drawn, Axis("people refused", percent, whole), Axis("of the bads", percent, whole),
                             title=title, about=about)  # fmt: skip


def _approved(groups: Disparities) -> Html:
    bars = []
    for name, one in groups.shown.items():
        impact = groups.impact(name)
        low = impact is not None and impact < FOUR_FIFTHS
        bars.append(Bar(name, one.approval_rate, f"{one.approval_rate:.1%}", colour=_REFUSED if low else _APPROVED))
    return row_chart(bars, Axis("", percent, (0.0, 1.0)), caption="Approved of each group, the largest first")


def _bands(found: ScoreFindings) -> list[tuple[str, ...]]:
    each = found.bands
    counts, shares = (
        zip(each.people, each.goods, each.bads, strict=True),
        zip(each.bad_rate, each.bads_taken, strict=True),
    )
    return [
        (name, *(f"{count:.0f}" for count in own), f"{rate:.1%}", f"{odds:.2f}", f"{gain:.1%}", f"{lift:.2f}")
        for name, own, (rate, gain), odds, lift in zip(
            _ranges(found), counts, shares, each.odds, each.lift, strict=True
        )
    ]


def _cuts(found: ScoreFindings) -> list[tuple[str, ...]]:
    each = found.bands
    columns = zip(each.taken, each.approved_bad_rate, each.bads_taken, each.goods_taken, strict=True)
    return [
        (name, f"{1 - taken:.1%}", "-" if np.isnan(rate) else f"{rate:.1%}", f"{bads:.1%}", f"{goods:.1%}",
         f"{abs(bads - goods):.3f}")
        for name, (taken, rate, bads, goods) in zip(_ranges(found), columns, strict=True)
    ]  # fmt: skip


def _ranges(found: ScoreFindings) -> list[str]:
    """Ranges of the bands in the scale's unit, ascending."""
    ends = [
        (found.scale.say(low), found.scale.say(high))
        for low, high in zip(found.bands.low, found.bands.high, strict=True)
    ]
    return [low if low == high else " to ".join((high, low) if found.scale.pdo else (low, high)) for low, high in ends]


def group_rows(groups: Disparities) -> list[tuple[str, ...]]:
    """The cells of `GROUPS` for every group that is large enough to be shown."""
    return [
        (name, str(one.people), f"{one.bad_rate:.1%}", f"{one.approval_rate:.1%}", _number(groups.impact(name), 2),
         _share(one.true_positive_rate), _share(one.false_positive_rate), _number(one.auc, 3))
        for name, one in groups.shown.items()
    ]  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"
