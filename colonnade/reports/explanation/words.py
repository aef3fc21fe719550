"""Text of `colonnade explain` about the parties: sentences, tables, and the content of explain.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from colonnade.reports.explanation.findings import DRAWS, SHUFFLES, Findings, PartyFindings
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.html.page import tile
from colonnade.reports.words import amount, listed
from colonnade.server.training.trees.forest import Forest

MEASURES = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy", "r2": "R2"}
"""Measures of the model with a party noised or missing, in words."""

HEADS = (
    "A head's norm and its growth (the norm over that before the first round) are no ranking: they depend on the "
    "scale of a party's embeddings, on the draw of the head, on learning rates, weight decay and the number of rounds."
)
"""What norms of heads do not say."""

WITHOUT = {
    "mean": "the mean of what a party sends stands in place of each row's",
    "shuffled": f"what a party says of the rows is shuffled over them; numbers are means of {SHUFFLES} such orders",
}
"""What replaces a missing party's messages."""

CHANCE = (
    f"An interval holds 95% of {DRAWS} resamples of these rows, each measured with and without the party. A loss whose "
    "interval reaches 0 cannot be told from chance."
)

_PLAIN = ("auc", "r2")  # no shares
_UNEQUAL = (
    "Measured by {measure}, since classes are unequal: the commonest has {share:.1%} of the training rows, so that "
    "accuracy would hardly change."
)


def headline(found: Findings) -> str:
    """Which parties are worth their cost, and which are undecided."""
    measure, shown = MEASURES[found.measure], partial(value_words, found.measure)
    told = [party for party in found.ranked if party.told]
    if not told:
        return (
            f"No party's loss can be told from chance: without any one of them the {measure} stays near "
            f"{shown(found.clean)} on {len(found.labels)} {found.part} rows."
        )
    most, share, cheap = told[0], _share_sent(found, told[:1]), _cheapest(told)
    alike = [party.name for party in told[1:] if not found.apart(most, party)]
    said = (
        f"{most.name} is worth most: without it the {measure} falls from {shown(found.clean)} to {shown(most.missing)}"
    )
    said += f" ({listed(alike)} cannot be told from it)" if alike else ""
    if cheap is not None and cheap is not most:
        said += f"; {cheap.name} gives most for its bytes"
    elif share is not None:
        said += f", for {share:.0%} of what the parties sent"
    untold = [party for party in found.ranked if not party.told]
    if not untold:
        return f"{said}."
    spent, names = _share_sent(found, untold), listed([party.name for party in untold])
    with_bytes = "" if spent is None else f" (with {spent:.0%} of the bytes)"
    return f"{said}. {names}{with_bytes} {'adds' if len(untold) == 1 else 'each add'} nothing told from chance."


def cards(trained: Trained, found: Findings) -> list[dict[str, Any]]:
    """The headline's numbers, for the first screen."""
    measure, shown = MEASURES[found.measure], partial(value_words, found.measure)
    other_rows = f"on other such rows {' to '.join(map(shown, found.interval))}"
    rows = f"{len(found.labels)} {found.part} rows, round {trained.round} of {trained.server.schedule.rounds}"
    tiles = [tile("The model", f"{shown(found.clean)} {measure}", other_rows, rows)]
    told, untold = ([party for party in found.ranked if party.told is wanted] for wanted in (True, False))
    if told:
        most, share = told[0], _share_sent(found, told[:1])
        lost = f"{lost_words(found.measure, found.clean - most.missing)} lost without it ({_between(found, most)})"
        tiles.append(tile("Worth most", most.name, lost, _bytes_words(share), tone="good"))
    if len(found.parties) > 1:
        names, share = listed([party.name for party in untold]) or "none", _share_sent(found, untold)
        more = f"train without: explain --keep top:{len(told)}" if told and untold else ""
        spent, tone = (_bytes_words(share), "warn") if untold else ("", "good")
        tiles.append(tile("Not told from chance", names, spent, more, tone=tone))
    if (other := second_opinion(found)) is not None:
        title, agrees, why = other
        word = {True: "agrees", False: "disagrees", None: "cannot be compared"}[agrees]
        tiles.append(tile(title, word, why, tone="" if agrees else "warn"))
    return tiles


def _bytes_words(share: float | None) -> str:
    return "" if share is None else f"{share:.0%} of the bytes"


def second_opinion(found: Findings) -> tuple[str, bool | None, str] | None:
    """Another way to rank the parties: its name, whether it agrees with the losses, and why; None without one."""
    for title, values in (
        ("Growth of the heads' norms", found.growths),
        ("Gain of the splits", _all([party.gain for party in found.parties])),
        ("Size of the scores", _all([party.size for party in found.parties])),
    ):
        if values is None or len(values) < 2:
            continue
        first = found.parties[max(range(len(values)), key=values.__getitem__)].name
        same = first == found.ranked[0].name
        value = found.agreement(values)
        if value is None:
            return title, same, f"it puts {first} first{' too' if same else ''}"
        if not found.needed:
            return title, None, "no party is needed by itself"
        return title, value > 0.7, f"it puts {first} first{' too' if same else ''}; rank correlation {value:.2f}"
    return None


def _all(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _cheapest(told: Sequence[PartyFindings]) -> PartyFindings | None:
    """The party with the largest loss per byte, if bytes are known and differ enough to matter."""
    sent = [party.sent for party in told if party.sent]
    if len(sent) < len(told) or len(sent) < 2 or max(sent) < 1.2 * min(sent):
        return None
    return max(told, key=lambda party: float(party.lost.mean()) / (party.sent or 1))


def _share_sent(found: Findings, parties: Sequence[PartyFindings]) -> float | None:
    """Their share of the bytes that left all parties; None if not all are known."""
    sent = _all([party.sent for party in found.parties])
    return None if sent is None or not sum(sent) else sum(party.sent or 0 for party in parties) / sum(sent)


def _between(found: Findings, party: PartyFindings) -> str:
    return " to ".join(lost_words(found.measure, end, unit=False) for end in party.interval)


def lost_words(measure: str, lost: float, *, unit: bool = True) -> str:
    """Formats what a measure loses: AUC and R2 to four digits, accuracies in points."""
    if measure in _PLAIN:
        return f"{round(lost, 4) + 0.0:.4f}"  # no -0.0000
    return f"{round(100 * lost, 2) + 0.0:.2f}" + (" points" if unit else "")


def value_words(measure: str, value: float) -> str:
    """Formats a measure: AUC and R2 to four digits, accuracies in per cent."""
    return f"{value:.4f}" if measure in _PLAIN else f"{value:.2%}"


def sentences(trained: Trained, found: Findings) -> list[str]:
    """The method, and notes on the model."""
    measure, shown = MEASURES[found.measure], partial(value_words, found.measure)
    said = [
        f"{trained.config.federation.protocol.name} among {len(found.parties)} parties, after round {trained.round} of "
        f"{trained.server.schedule.rounds}: {found.part} {measure} {shown(found.clean)} ({len(found.labels)} rows).",
        f"Parties are ranked by the {measure} that is lost without them: {WITHOUT[without(found)]}.",
    ]
    if found.measure != "accuracy" and (balance := trained.server.balance) is not None:
        said.insert(1, _UNEQUAL.format(measure=measure, share=balance.share))
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


def of_heads(found: Findings) -> str:
    """The norms' meaning, and whether they agree with the ranking here."""
    value = found.agreement(found.growths)
    if value is None:
        return HEADS
    verdict = "the same order" if value > 0.999 else "much the same order" if value > 0.7 else "another order"
    return f"{HEADS} Here growth puts the parties in {verdict} (rank correlation with what is lost {value:.2f})."


def columns_of(found: Findings) -> list[tuple[str, Callable[[PartyFindings], str]]]:
    """Heads and cells of a table of the parties, after rank and name."""
    measure, shown = MEASURES[found.measure], partial(value_words, found.measure)
    columns: list[tuple[str, Callable[[PartyFindings], str]]] = [
        (f"{measure} without it", lambda party: shown(party.missing)),
        ("lost, from", lambda party: lost_words(found.measure, party.interval[0], unit=False)),
        ("to", lambda party: lost_words(found.measure, party.interval[1], unit=False)),
    ]
    if all(party.sent is not None for party in found.parties):
        columns.append(("sent", lambda party: amount(party.sent or 0)))
    if any(party.awaited for party in found.parties):
        columns.append(("awaited", lambda party: f"{party.awaited:.1f} s"))
    if all(party.size is not None for party in found.parties):
        columns.append(("mean size of its scores", lambda party: f"{party.size:.3f}"))
    elif found.noise_lost is None:
        columns.append(("gain of its splits", lambda party: f"{party.gain or 0:.1%}"))
        columns.append(("its splits", lambda party: str(party.splits)))
    else:
        columns.append((f"{measure} noised", lambda party: "-" if party.noised is None else shown(party.noised)))
        columns.append(("norm of its head", lambda party: _plain(party.norm)))
        columns.append(("growth of the norm", lambda party: _plain(party.growth, 4)))
    return columns


def numbers(trained: Trained, found: Findings) -> dict[str, Any]:
    """Content of explain.json.

    `measure` names the metric of `value`, `noised` and `missing`, from 0 to 1; `without` names the replacement of a
    missing party's messages; `interval` has the 2.5th and 97.5th percentile of the resamples; `agreement` has rank
    correlations with the loss without a party.
    """
    ranked = [party.name for party in found.ranked]
    return {
        "federation": trained.config.federation.id,
        "protocol": trained.config.federation.protocol.name,
        "run": trained.folder.number(),
        "round": trained.round,
        "rounds": trained.server.schedule.rounds,
        "part": found.part,
        "rows": len(found.labels),
        "sigma": found.sigma,
        "measure": found.measure,
        "value": found.clean,
        "interval": found.interval,
        "resamples": DRAWS,
        "reported": _reported(trained, found),
        "without": without(found),
        "ranked_by": "missing",
        "ranked": ranked,
        "most_important": ranked[0] if found.needed else None,
        "least_important": ranked[-1] if found.needed else None,
        "agreement": {
            "noised": found.agreement(found.noise_lost),
            "growth": found.agreement(found.growths),
            "gain": found.agreement(_all([party.gain for party in found.parties])),
        },
        "said": headline(found),
        "parties": {party.name: _party(found, party, ranked.index(party.name) + 1) for party in found.parties},
        **({} if (forest := trained.forest) is None else {"splits": _by_split(trained.names, forest)}),
    }


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
        "interval": party.interval,
        "told": party.told,
        "bytes": party.sent,
        "awaited": party.awaited,
    }


def _by_split(names: Sequence[str], forest: Forest) -> dict[str, list[dict[str, float]]]:
    """The server's knowledge of each party's splits, by number; the party's own file names the columns."""
    used = {name: forest.used(party) for party, name in enumerate(names)}
    return {
        name: [{"nodes": int(count), "gain": float(gain)} for count, gain in zip(*both, strict=True)]
        for name, both in used.items()
    }


def without(found: Findings) -> str:
    return "mean" if found.noise_lost is not None else "shuffled"


def _reported(trained: Trained, found: Findings) -> float | None:
    prefix, best = "test" if found.part == "test" else "val", trained.summary.get("best")
    reported = best if best and _of_best(trained) else trained.summary.get("metrics", {})
    value: float | None = reported.get(f"{prefix}_{found.measure}")
    return value


def _of_best(trained: Trained) -> bool:
    best = trained.summary.get("best")
    return best is not None and trained.round == best["round"]


def _plain(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
