"""The page and the console's lines of `colonnade scorecard`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from colonnade.common.data.columns.distribution import LARGE, MODERATE, level
from colonnade.common.run.numbers import plain
from colonnade.reports.html.curves import Curve, Say, colour, curves, legend
from colonnade.reports.html.frame import SCRIPT, contents, facts, frame, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.run_page.quality import gains_chart
from colonnade.reports.scorecard.findings import ScoreFindings, suppressed_words
from colonnade.reports.words import counted, percent
from colonnade.server.training.metrics import gains
from colonnade.server.training.metrics.groups import FOUR_FIFTHS, Disparities

_SIZE = (420, 270)
_BINS = 25  # of the score's distribution
_POINTS = 200  # of a curve
_BANDS = ("people", "goods", "bads", "bad rate", "odds", "gain", "lift")
_CUTS = ("approved", "bad rate", "bads refused", "goods refused", "KS")
_GROUPS = ("group", "people", "bad rate", "approved", "impact", "TPR", "FPR", "AUC")


def lines(found: ScoreFindings) -> list[tuple[str, str]]:
    """Names and values, of the whole."""
    rows, scale, ks = found.rows, found.scale, found.ks
    auc = gains.auc(found.risk, found.bads)
    said = [
        ("rows", f"{counted(len(rows.ids), f'{found.part} row')}, {int(found.bads.sum())} of them bads"),
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


def show(console: Console, found: ScoreFindings) -> None:
    grid = Table.grid(padding=(0, 2))
    for name, words in lines(found):
        grid.add_row(name, words)
    console.print(grid)
    print_table(console, [found.scale.name, *_BANDS], _bands(found), "Bands, the riskiest first")
    print_table(console, [found.scale.name, *_CUTS], _cuts(found), "If a band and riskier ones are refused")
    if found.groups is not None:
        if found.groups.shown:
            print_table(console, _GROUPS, _groups(found.groups), f"By group, at {found.scale.say(found.cut_off[0])}")
        for line in (*suppressed_words(found.groups), *found.notes):
            console.print(line, soft_wrap=True)


def print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """Prints a table whose first column is text; it fits 80 columns if its cells do."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for at, head in enumerate(heads):
        made.add_column(head, justify="right" if at else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    console.print(made)


def page(found: ScoreFindings) -> str:
    sections = [_curves(found), _gain(found), _cut_offs(found), _disparities(found)]
    title = f"{found.run.summary.get('federation') or found.run.name}: scores"
    return frame(title, [facts(lines(found)), contents(sections), *sections], SCRIPT)


def _curves(found: ScoreFindings) -> Html:
    goods, bads = found.classes()
    low, high = float(min(goods.min(), bads.min())), float(max(goods.max(), bads.max()))
    at = np.unique([low, *np.quantile(np.concatenate([goods, bads]), np.linspace(0, 1, _POINTS)), high])
    named = (("goods", goods), ("bads", bads))
    reached = [
        Curve(name, list(zip(at, np.searchsorted(np.sort(own), at, side="right") / len(own), strict=True)), colour(n))
        for n, (name, own) in enumerate(named)
    ]
    edges = np.linspace(low, high, _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    spread = [
        Curve(name, list(zip(middle, np.histogram(own, edges)[0] / len(own), strict=True)), colour(n))
        for n, (name, own) in enumerate(named)
    ]
    top = max(share for curve in spread for _, share in curve.points)
    ks = found.ks
    mark = float(found.scale.shown(np.array([ks[1]]))[0]), f"KS {ks[0]:.2f}"
    figures = (
        _figure(found, "Share of each class up to a score", reached, 1.0, mark),
        _figure(found, "Distribution of scores by class", spread, top),
    )
    said = "KS is the largest distance between the two curves of the first figure."
    if found.before is not None:
        said += f" By convention a PSI of {MODERATE:g} is a move, {LARGE:g} a shift; few rows show only large ones."
    return section("Scores", tag("p", said), tag("div", *figures, class_="charts"), legend(reached))


def _figure(
    found: ScoreFindings, title: str, drawn: Sequence[Curve], top: float, mark: tuple[float, str] | None = None
) -> Html:
    scale, (ks, at) = found.scale, found.ks
    say: Say = (lambda x: f"{x:.0f}") if scale.pdo else (lambda x: plain(x, 3))
    begin = min(x for curve in drawn for x, _ in curve.points) if scale.pdo else 0.0
    about = f"KS {ks:.4f} at {scale.say(at)}"
    made = curves(drawn, percent, say, span=(0.0, top), size=_SIZE, title=title, about=about, mark=mark, begin=begin)
    said = tag("p", class_="said", aria_hidden="true")  # the page's script writes values here
    return tag("figure", tag("figcaption", title), Html(made), tag("div", scale.name, class_="foot faint"), said)


def _gain(found: ScoreFindings) -> Html:
    points = gains.curve(found.risk, found.bads)
    bads = int(found.bads.sum())
    chart = gains_chart(points, [[len(found.bads) - bads, 0], [0, bads]], found.bad)
    return section("Gain and lift", chart)


def _cut_offs(found: ScoreFindings) -> Html:
    said = (
        "Bands of about equal numbers of people, at least five; people of equal score share one. Odds are goods a bad. "
        "Gain is the share of all bads in a band and riskier ones, lift the band's bad rate over that of all people."
    )
    bands = table([found.scale.name, *_BANDS], _bands(found), caption="The riskiest first")
    cuts = table([found.scale.name, *_CUTS], _cuts(found), caption="If a band and riskier ones are refused")
    return section("Cut-offs", tag("p", said), bands, cuts)


def _disparities(found: ScoreFindings) -> Html:
    groups = found.groups
    if groups is None:
        return Html()
    parts = [tag("p", line) for line in (*suppressed_words(groups), *found.notes)]
    if groups.shown:
        said = (
            f"At the cut-off of {found.scale.say(found.cut_off[0])}. Impact is the approval rate over that of the "
            f"group approved most often; below {FOUR_FIFTHS:g} it asks for a reason (the four-fifths rule). TPR and "
            "FPR are the shares of the group's bads and goods that are refused. Suppression covers this page alone: "
            "pages of other groupings or cut-offs of the same people can be compared with it."
        )
        parts = [tag("p", said), table(_GROUPS, _groups(groups), caption="By group, the largest first"), *parts]
    return section("Groups", *parts)


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
    """Of the bands, in the unit of the scale, ascending."""
    ends = [
        (found.scale.say(low), found.scale.say(high))
        for low, high in zip(found.bands.low, found.bands.high, strict=True)
    ]
    return [low if low == high else " to ".join((high, low) if found.scale.pdo else (low, high)) for low, high in ends]


def _groups(groups: Disparities) -> list[tuple[str, ...]]:
    return [
        (name, str(one.people), f"{one.bad_rate:.1%}", f"{one.approval_rate:.1%}", _number(groups.impact(name), 2),
         _share(one.true_positive_rate), _share(one.false_positive_rate), _number(one.auc, 3))
        for name, one in groups.shown.items()
    ]  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"
