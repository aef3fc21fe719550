"""Each party's contribution, traffic and disclosure: importance, the forest's splits, bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from colonnade.common.run.json_text import is_number
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.text import plain
from colonnade.reports.console.summary import forest_words, gradient_words
from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.page import Html
from colonnade.reports.records.ledgers import describe_kind
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import result_of
from colonnade.reports.run_page.privacy import protected
from colonnade.reports.words import amount, listed, percent

FOREST_COLUMNS = ("gain of its splits", "nodes", "cuts revealed to the server")

_SHOWN = 24  # bars of a chart
_MEASURES = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy", "r2": "R2"}
_COLUMNS = {"missing": "{} without it", "noised": "{}, its data noised", "norm": "norm of its head",
            "growth": "growth of the norm", "gain": "gain of its splits", "splits": "its splits",
            "size": "mean size of its scores"}  # fmt: skip
_HEADS = "A head's norm and its growth (over the norm before the first round) are no ranking: see docs/explain.md."
_ABSENT = "Measured on the validation rows, with the party's mean output in place of its own."


def importance(run: RecordedRun, beside: Path | None) -> dict[str, Any]:
    """The parties by the loss without them, as measured by `colonnade explain`, else by the run on validation rows.

    Args:
        beside: folder of this page; None omits the link to the page of `explain`.
    """
    if (found := run.explained) is None:
        found = _absent(run)
        return {**found, "notes": [*found["notes"], *([f"{run.outdated}."] if run.outdated else [])]}
    parties, measure = found["parties"], found["measure"]
    drops = {name: parties[name]["drop_missing"] for name in found["ranked"]}
    notes = [found["said"], *([_HEADS] if any(is_number(one.get("norm")) for one in parties.values()) else [])]
    page, link = RunFolder(run.folder).explained_page, None
    if beside is not None and page.is_file():
        link = (page.name, quote(os.path.relpath(page, beside)))
    return {**_ranked(drops, measure, notes, parties), "table": _table(drops, parties, measure), "link": link}


def _absent(run: RecordedRun) -> dict[str, Any]:
    """From `absent` of the summary; if missing, the command to run."""
    absent, result = run.summary.get("absent"), result_of(run.summary)
    metric = "rmse" if result is not None and result.metric == "rmse" else "accuracy"
    best = run.summary.get("best") if result is not None and result.round is not None else None
    whole = (best or run.summary["metrics"]).get(f"val_{metric}")
    if not absent or not is_number(whole):
        return {"said": "", "notes": [], "picture": None, "table": None, "link": None}
    sign = -1 if metric == "rmse" else 1
    drops = {name: sign * (whole - value) for name, value in absent.items()}
    drops = dict(sorted(drops.items(), key=lambda item: -item[1]))
    return {**_ranked(drops, metric, [_ABSENT]), "table": None, "link": None}


def _ranked(
    drops: Mapping[str, float], measure: str, notes: list[str], parties: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """A bar from 0 for each party, with its interval if known; grey if it may be chance."""
    words = "RMSE" if measure == "rmse" else _MEASURES[measure]
    verb = "added" if measure == "rmse" else "lost"
    said = f"By the {words} that is {verb} without them, from most to least: {listed(list(drops), 10)}."
    if max(drops.values()) <= 0:
        falls = "rise" if measure == "rmse" else "fall"
        said = f"No party is needed by itself: without any one of them the {words} does not {falls}."
    axis = Axis(f"{words} {verb}", lambda value: _points(measure, value))
    bars = []
    for name, value in list(drops.items())[:_SHOWN]:
        own = parties.get(name, {})
        low, high = own.get("interval", (None, None))
        bars.append(Bar(name, value, _points(measure, value), low, high, 6 if own.get("told") is False else 1))
    chance = ", with what chance may make of it" if any(bar.low is not None for bar in bars) else ""
    caption = f"{words[:1].upper()}{words[1:]} {verb} without the party{chance}"
    return {"said": said, "notes": notes, "picture": row_chart(bars, axis, caption=caption)}


def _points(measure: str, value: float) -> str:
    return f"{100 * value:.3g} points" if measure.endswith("accuracy") else plain(value, 3)


def _table(drops: Mapping[str, float], parties: Mapping[str, Any], measure: str) -> dict[str, Any]:
    known = [key for key in _COLUMNS if any(parties[name].get(key) is not None for name in drops)]
    words = _MEASURES[measure]
    return {
        "heads": ("party", f"{words} lost without it", *(_COLUMNS[key].format(words) for key in known)),
        "rows": [(name, _points(measure, drop), *(_said(key, parties[name].get(key), measure) for key in known))
                 for name, drop in drops.items()],
        "caption": "By what is lost without a party, the most first",
    }  # fmt: skip


def _said(key: str, value: object, measure: str) -> str:
    if not is_number(value):
        return "-"
    share = key == "gain" or (key in ("noised", "missing") and measure not in ("auc", "r2"))
    return percent(float(value)) if share else plain(float(value))


def forest(run: RecordedRun) -> dict[str, Any] | None:
    """Number of trees, and the gain and disclosure of each party's columns; None unless the model is a forest."""
    if (found := run.summary.get("forest")) is None:
        return None
    columns = [
        (name, str(number), f"{column['revealed']} of {column['cuts']}")
        for name, own in found["parties"].items()
        for number, column in enumerate(own["columns"])
    ]
    bars = [Bar(name, own["gain"], f"{own['gain']:.1%}") for name, own in list(found["parties"].items())[:_SHOWN]]
    return {
        "facts": [("trees", forest_words(found)), ("gradients", gradient_words(found)),
                  ("bytes", tree_bytes(run.summary))],
        "picture": row_chart(bars, Axis("share of the gain", percent), caption="Share of the splits' gain by party"),
        "rows": [(name, *forest_columns(own)) for name, own in found["parties"].items()],
        "heads": ("party", *FOREST_COLUMNS),
        "columns": columns,
    }  # fmt: skip


def forest_columns(own: Mapping[str, Any]) -> tuple[str, str, str]:
    """A party's cells for `FOREST_COLUMNS`."""
    revealed, cuts = (sum(column[key] for column in own["columns"]) for key in ("revealed", "cuts"))
    return f"{own['gain']:.1%}", str(own["nodes"]), f"{revealed} of {cuts}"


def tree_bytes(summary: Mapping[str, Any]) -> str:
    """Mean traffic of a round."""
    rounds = max(summary["rounds"], 1)
    down, up = (amount(summary["bytes"][way]["payload"] / rounds) for way in ("down", "up"))
    return f"{down} to the parties and {up} to the server a round, tables of bins included"


def traffic(run: RecordedRun) -> dict[str, Any] | None:
    """Bytes by party and direction, and by kind of message from the ledgers; None if nothing was counted."""
    counted = run.summary.get("bytes") or {}
    said = list(_totals(counted))
    if not said and not run.books:
        return None
    by_party = counted.get("parties") or {}
    return {
        "said": said,
        "picture": _by_party(by_party) if by_party else None,
        "rows": [(name, *(amount(ways[way][unit]) for way in ("up", "down") for unit in ("wire", "payload")))
                 for name, ways in by_party.items()],
        "kinds": list(_kinds(run)),
        "ledgers": bool(run.books) or run.virtual,
    }  # fmt: skip


def _totals(counted: Mapping[str, Any]) -> Iterator[str]:
    units = {"payload": "of tensors", "wire": "on the wire"}
    for way, words in (("up", "parties to server"), ("down", "server to parties")):
        if found := [
            f"{amount(counted[way][unit])} {of}" for unit, of in units.items() if unit in counted.get(way, ())
        ]:
            yield f"From {words}: {', '.join(found)}."


def _by_party(parties: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Html:
    sizes = {name: tuple(ways[way]["wire"] for way in ("up", "down")) for name, ways in parties.items()}
    most = sorted(sizes, key=lambda name: -sum(sizes[name]))[:_SHOWN]
    bars = [Bar(name, sum(sizes[name]), "{} up, {} down".format(*map(amount, sizes[name]))) for name in most]
    more = f", the {_SHOWN} with most" if len(sizes) > len(most) else ""
    return row_chart(bars, Axis("on the wire", amount), caption=f"Bytes on the wire by party{more}")


def _kinds(run: RecordedRun) -> Iterator[tuple[Any, ...]]:
    protocol = str(run.summary["protocol"])
    for kind, book in sorted(run.books.items(), key=lambda entry: -entry[1].bytes):
        ways = listed([protected(mechanism)[0] for mechanism in book.mechanisms])
        counts = (len(book.parties), book.messages, amount(book.bytes), book.rows, book.repeats)
        yield (kind, describe_kind(kind, protocol) or "-", ways, *counts)
