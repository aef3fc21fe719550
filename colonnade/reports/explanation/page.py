"""Bars and maps for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from colonnade.reports.explanation.findings import SHUFFLES, Findings, PartyFindings
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.html.curves import colour
from colonnade.reports.html.frame import frame, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.plots import GREY, picture
from colonnade.server.training.trees.forest import Forest
from colonnade.server.training.trees.score_sum import ScoreSum

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MOST, _LEAST = "#0b8a63", "#c8553d"
_PLAIN = ("auc", "r2")  # no shares
_MANY = 16  # with more bars there is no room for values


def bars(
    names: Sequence[str],
    values: Sequence[float],
    say: Callable[[float], str],
    ends: tuple[str, str] | None = None,
) -> str:
    """One bar per party from 0, with its value above it.

    Args:
        say: formats a value.
        ends: the most and the least important party, whose bars are coloured.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        fills = [dict(zip(ends or (), (_MOST, _LEAST), strict=False)).get(name, GREY) for name in names]
        drawn = axes.bar(range(len(names)), values, 0.72, color=fills)
        if len(names) <= _MANY:
            axes.bar_label(drawn, [say(value) for value in values], padding=2)
        axes.set_xticks(range(len(names)), names)
        if sum(map(len, names)) > 100:
            axes.tick_params("x", rotation=35)
            for name in axes.get_xticklabels():
                name.set(ha="right", rotation_mode="anchor")
        axes.margins(y=0.1)
        axes.grid(visible=False, axis="x")
        axes.grid(axis="y")
        axes.yaxis.set_major_formatter(lambda y, _: say(y))

    about = "; ".join(f"{name}: {say(value)}" for name, value in zip(names, values, strict=True))
    return picture((860, 260), paint, title="A bar for each party", about=about)


def scatter(points: Tensor, classes: Tensor) -> str:
    """A map: one dot per row, float (rows, 2), coloured by its class, int64 (rows,)."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set_axis_off()
        x, y = points.T.tolist()
        axes.scatter(x, y, s=9, c=[colour(number) for number in classes.tolist()], linewidths=0)

    return picture((290, 290), paint)


MEASURES = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy", "r2": "R2"}
"""Measures of the model with a party noised or missing, in words."""

HEADS = (
    "A head's norm and its growth (the norm over that before the first round) rank nobody: they depend on the scale of "
    "a party's embeddings, on the draw of the head, on learning rates, weight decay and the number of rounds."
)
"""What norms of heads do not say."""

_WITHOUT = {
    "mean": "the mean of what a party sends stands in place of each row's",
    "shuffled": f"what a party says of the rows is shuffled over them; numbers are means of {SHUFFLES} such orders",
}

_WHY = (
    "Measured by {measure}, since classes are unequal: the commonest has {share:.1%} of the training rows, so that "
    "accuracy would hardly change."
)


_FOREST = (
    "Missing: what the party says of these rows is shuffled over them, so that it tells nothing of a row. The model is "
    "not trained again, so that this says how much it leans on the party, and not whether others could stand in for "
    "it. A bar below 0 is a gain."
)


@dataclass(frozen=True)
class Maps:
    """t-SNE maps of the same rows: `points`, float (rows, 2), by title; `classes`, int64 (rows,)."""

    points: Mapping[str, Tensor]
    classes: Tensor


def numbers(trained: Trained, found: Findings) -> dict[str, Any]:
    """Content of explain.json.

    `measure` names the metric of `value`, `noised` and `missing`, from 0 to 1; `without` says what replaces a missing
    party's messages; `agreement` has rank correlations with the loss without a party.
    """
    ranked = [party.name for party in found.ranked]
    return {
        "federation": trained.config.federation.id,
        "protocol": trained.config.federation.protocol.name,
        "round": trained.round,
        "rounds": trained.server.schedule.rounds,
        "part": found.part,
        "rows": len(found.labels),
        "sigma": found.sigma,
        "measure": found.measure,
        "value": found.clean,
        "reported": _reported(trained, found),
        "without": _without(found),
        "ranked_by": "missing",
        "ranked": ranked,
        "most_important": ranked[0] if found.needed else None,
        "least_important": ranked[-1] if found.needed else None,
        "agreement": {
            "noised": found.agreement(found.noise_lost),
            "growth": found.agreement(found.growths),
            "gain": found.agreement([party.gain for party in found.parties if party.gain is not None] or None),
        },
        "parties": {party.name: _party(found, party, ranked.index(party.name) + 1) for party in found.parties},
        **({} if (forest := trained.forest) is None else {"splits": _by_split(trained.names, forest)}),
    }


def _by_split(names: Sequence[str], forest: Forest) -> dict[str, list[dict[str, float]]]:
    """What the server knows of each party's splits, by number: the party's own file says what they are."""
    used = {name: forest.used(party) for party, name in enumerate(names)}
    return {
        name: [{"nodes": int(count), "gain": float(gain)} for count, gain in zip(*both, strict=True)]
        for name, both in used.items()
    }


def _without(found: Findings) -> str:
    """What replaces a missing party's messages."""
    return "mean" if found.noise_lost is not None else "shuffled"


def _party(found: Findings, party: PartyFindings, rank: int) -> dict[str, Any]:
    return {
        **({} if party.gain is None else {"gain": party.gain, "splits": party.splits}),
        **({} if party.size is None else {"size": party.size}),
        "rank": rank,
        "norm": party.norm,
        "first_norm": party.first_norm,
        "growth": party.growth,
        "noised": party.noised,
        "missing": party.missing,
        "loss_missing": party.missing_loss,
        "drop_noised": None if party.noised is None else found.clean - party.noised,
        "drop_missing": found.clean - party.missing,
    }


def html(trained: Trained, found: Findings, maps: Maps | None) -> str:
    """The self-contained page."""
    opening = joined([tag("p", sentence) for sentence in sentences(trained, found)])
    own = [] if isinstance(trained.joint, ScoreSum) else [_heads(found) if trained.forest is None else _gains(found)]
    sections = [opening, *_drops(found), _table(found), *own, *([_maps(trained, maps)] if maps else []), _caveats()]
    return frame(f"{trained.config.federation.id}: how much each party matters", sections)


def sentences(trained: Trained, found: Findings) -> list[str]:
    ranked = found.ranked
    most, least, measure, shown = ranked[0], ranked[-1], MEASURES[found.measure], partial(value_words, found.measure)
    said = [
        f"{trained.config.federation.protocol.name} among {len(ranked)} parties, after round {trained.round} of "
        f"{trained.server.schedule.rounds}: {found.part} {measure} {shown(found.clean)} ({len(found.labels)} rows).",
        f"Parties are ranked by the {measure} that is lost without them: {_WITHOUT[_without(found)]}.",
    ]
    if not found.needed:
        said.append(f"No party is needed by itself: without any one of them the {measure} does not fall.")
    elif len(ranked) > 1:
        noise = ["" if party.noised is None else f"{shown(party.noised)}" for party in (most, least)]
        said.append(
            f"The most important is {most.name}: without it the {measure} is {shown(most.missing)}"
            + (f", and with noise on its features {noise[0]}" if noise[0] else "")
            + f". The least is {least.name}: {shown(least.missing)} without it"
            + (f", {noise[1]} with noise." if noise[1] else ".")
        )
    if found.measure != "accuracy" and (balance := trained.server.balance) is not None:
        said.insert(1, _WHY.format(measure=measure, share=balance.share))
    if any(party.norm is not None for party in found.parties):
        said.append(_of_heads(found))
    if trained.round != trained.summary["rounds"] and not _of_best(trained):
        said.append(
            f"The newest checkpoint that all members hold is of round {trained.round}: this is the model of that "
            f"round, and not of the last one, {trained.summary['rounds']}."
        )
    elif (reported := _reported(trained, found)) is not None and abs(reported - found.clean) > 5e-4:
        said.append(
            f"The run itself reported {shown(reported)}: there somebody's answers were missing, or were not sent in "
            "the clear, or the arithmetic was another machine's."
        )
    return said


def value_words(measure: str, value: float) -> str:
    """Formats a measure: AUC and R2 to four digits, accuracies in per cent."""
    return f"{value:.4f}" if measure in _PLAIN else f"{value:.2%}"


def columns_of(found: Findings) -> list[tuple[str, Callable[[PartyFindings], str]]]:
    """Heads of a table of the parties, after rank and name, and what stands below them."""
    measure, shown = MEASURES[found.measure], partial(value_words, found.measure)
    columns: list[tuple[str, Callable[[PartyFindings], str]]]
    columns = [(f"{measure} without it", lambda party: shown(party.missing))]
    if all(party.size is not None for party in found.parties):
        columns.append(("mean size of its scores", lambda party: f"{party.size:.3f}"))
        return columns
    if found.noise_lost is None:
        columns.append(("gain of its splits", lambda party: f"{party.gain or 0:.1%}"))
        columns.append(("its splits", lambda party: str(party.splits)))
        return columns
    columns.append((f"{measure} noised", lambda party: "-" if party.noised is None else shown(party.noised)))
    columns.append(("norm of its head", lambda party: _plain(party.norm)))
    columns.append(("growth of the norm", lambda party: _plain(party.growth, 4)))
    return columns


def _of_heads(found: Findings) -> str:
    """Explains norms, and whether they agree with the ranking here."""
    value = found.agreement(found.growths)
    if value is None:
        return HEADS
    verdict = "same order" if value > 0.999 else "much the same order" if value > 0.7 else "another order"
    return f"{HEADS} Here growth puts the parties in {verdict} (rank correlation with what is lost {value:.2f})."


def _reported(trained: Trained, found: Findings) -> float | None:
    prefix, best = "test" if found.part == "test" else "val", trained.summary.get("best")
    reported = best if best and _of_best(trained) else trained.summary.get("metrics", {})
    value: float | None = reported.get(f"{prefix}_{found.measure}")
    return value


def _of_best(trained: Trained) -> bool:
    best = trained.summary.get("best")
    return best is not None and trained.round == best["round"]


def _heads(found: Findings) -> Html:
    names, growths = [party.name for party in found.parties], found.growths
    norms = [party.norm for party in found.parties if party.norm is not None]
    if len(norms) < len(names):
        return section("Heads", tag("p", "No head, or block of one, belongs to one party alone: no norm to compare."))
    if growths is None:
        what, values, say = "Norm of each party's head", norms, lambda value: f"{value:.3f}"
    else:
        what = "Growth of the norm of each party's head since before the first round, in per cent"
        values, say = [100 * (growth - 1) for growth in growths], lambda value: f"{value:.1f}"
    said = f"""{HEADS} The paper that ranks by norms (VIMADMM, Xie et al. 2024, Figure 3) trains ten epochs with a
weight decay of .005, under which heads without use shrink; shorter or with less decay a norm is mostly that
of the draw."""
    return section(what, tag("div", Html(bars(names, values, say)), class_="scroll"), tag("p", said))


def _gains(found: Findings) -> Html:
    """What a party's splits gain in a forest."""
    gains = {party.name: 100 * (party.gain or 0) for party in found.parties}
    said = """The gain of a split is what it takes off the loss of the training rows, by the loss's first two
derivatives. Gain favours columns with many values, and says nothing of rows that were not trained on. In a party's own
folder explain.json has its columns and splits by name."""
    picture = bars(list(gains), list(gains.values()), lambda value: f"{value:.1f}")
    return section(
        "Gain of each party's splits, in per cent", tag("div", Html(picture), class_="scroll"), tag("p", said)
    )


def _drops(found: Findings) -> list[Html]:
    if (noised := found.noise_lost) is None:
        return [_drop(found, "is missing", found.importance), tag("p", _FOREST)]
    said = f"""Missing: the mean of what it sends, over these rows, in place of each. Noised: Gaussian noise of standard
deviation {found.sigma:g} on this party's scaled features, everyone else as they are. The model is not trained again, so
that this says how much the model leans on the party, and not whether others could stand in for it. A bar below 0 is a
gain."""
    return [_drop(found, "is missing", found.importance), _drop(found, "is noised", noised), tag("p", said)]


def _drop(found: Findings, what: str, lost: Sequence[float]) -> Html:
    unit, form = (1, ".4f") if found.measure in _PLAIN else (100, ".2f")
    names = [party.name for party in found.parties]
    picture = bars(names, [unit * each for each in lost], lambda value: f"{value:{form}}", ends=_ends(found))
    points = "" if found.measure in _PLAIN else "points of "
    title = f"{points}{found.part} {MEASURES[found.measure]} lost when a party {what}"
    title = title[:1].upper() + title[1:]
    return section(title, tag("div", Html(picture), class_="scroll"))


def _table(found: Findings) -> Html:
    columns = columns_of(found)
    rows = [(str(rank), party.name, *(say(party) for _, say in columns)) for rank, party in enumerate(found.ranked, 1)]
    head = ("rank", "party", *(name for name, _ in columns))
    return section("All numbers", table(head, rows, words=(1,), caption="Every party, by what is lost without it"))


def _maps(trained: Trained, maps: Maps) -> Html:
    figures = [
        tag("figure", Html(scatter(points, maps.classes)), tag("figcaption", title))
        for title, points in maps.points.items()
    ]
    classes = trained.config.federation.classes
    names = [str(number) for number in range(classes)] if isinstance(classes, int) else list(classes)
    legend: list[object] = []
    for number, name in enumerate(names[:30]):
        legend += [tag("span", class_="dot", style=f"background:{colour(number)}"), name]
    said = """Colours are the classes. Where colours lie apart, the embeddings alone tell the classes apart. Distances
between groups and their sizes mean nothing in such a map."""
    title = f"Embeddings of {len(maps.classes)} rows, one dot each (t-SNE)"
    return section(title, tag("div", *figures, class_="maps"), tag("p", *legend), tag("p", said))


def _caveats() -> Html:
    said = (
        "To make this page, the data, models and labels of all members were opened on one machine. That is fine for a "
        "benchmark or where one operator owns them; between organisations it is what a federation is there to avoid.",
        "On machines of their own, only what the server keeps can be had: norms of heads, gains of a forest's splits.",
        "Parties whose losses differ by a few rows are ranked by chance: other rows or another seed may order them "
        "otherwise. Two parties with the same information share their importance, and each may seem to have none.",
        "It is the trained model that is tried. Only training without a party shows if others could replace it, and "
        "nothing here says what a party's data are worth.",
    )
    return section("Scope and limits", tag("ul", *(tag("li", each) for each in said), class_="note"))


def _ends(found: Findings) -> tuple[str, str]:
    ranked = found.ranked
    return ranked[0].name, ranked[-1].name


def _plain(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
