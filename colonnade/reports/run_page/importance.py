"""Importance of each party, as measured by `colonnade explain`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from colonnade.common.run.json_values import is_number
from colonnade.common.run.numbers import plain
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.frame import folded, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import listed, percent

_TITLE = "Importance of the parties"
_NOT_ASKED = (
    "Not measured. Where one machine has the folders of all members, ",
    tag("code", "colonnade explain RUN"),
    " measures it of a run that has ended, for protocols whose models it can take apart; this page then shows it.",
)
_MEASURES = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy", "r2": "R2"}
_COLUMNS = {"missing": "{} without it", "noised": "{}, its data noised", "norm": "norm of its head",
            "growth": "growth of the norm", "gain": "gain of its splits", "splits": "its splits",
            "size": "mean size of its scores"}  # fmt: skip
_PLAIN = ("auc", "r2")  # no shares
_LOST = "drop_missing"
_HEADS = "A head's norm and its growth (over the norm before the first round) rank nobody: see docs/explain.md."
_ZEROS = "An earlier version measured it, with zeros in place of what a party sends; run `colonnade explain` again."


def importance(run: RecordedRun, beside: Path | None) -> Html:
    """The parties by the loss without them, linked to the page of `explain`; or a note that it was not measured.

    Earlier versions ranked by heads' norms. Their order is not used: the file has the losses.

    Args:
        beside: folder of this page; None omits the link.
    """
    found = run.explained or {}
    parties = found.get("parties")
    if not isinstance(parties, Mapping) or not parties or not all(isinstance(one, Mapping) for one in parties.values()):
        return section(_TITLE, tag("p", *_NOT_ASKED))
    lost = {str(name): _number(one.get(_LOST)) for name, one in parties.items()}
    if any(value is None for value in lost.values()):
        return section(_TITLE, tag("p", *_NOT_ASKED))
    drops = {name: value or 0.0 for name, value in lost.items()}
    given = found.get("ranked")
    given = [str(name) for name in given] if isinstance(given, list) and found.get("ranked_by") == "missing" else []
    place = {name: at for at, name in enumerate(given)}  # orders ties
    names = sorted(drops, key=lambda name: (-drops[name], place.get(name, len(place))))
    measure = found.get("measure")
    measure = measure if measure in _MEASURES else "accuracy"  # version 0.2 had no other measure and did not name it
    said = f"By the {_MEASURES[measure]} that is lost without them, from most to least: {listed(names, 10)}."
    if max(drops.values()) <= 0:
        said = f"No party is needed by itself: without any one of them the {_MEASURES[measure]} does not fall."
    told = found.get("said")
    notes = [said, *([told] if isinstance(told, str) else [])]
    notes += [] if found.get("without") in ("mean", "shuffled") else [_ZEROS]
    if any(_number(one.get("norm")) is not None for one in parties.values()):
        notes.append(_HEADS)
    page = RunFolder(run.folder).explained_page
    more = Html()
    if beside is not None and page.is_file():
        more = tag("p", "All about it: ", tag("a", page.name, href=quote(os.path.relpath(page, beside))))
    return section(
        _TITLE, *(tag("p", note) for note in notes), _chart(names, drops, parties, measure),
        folded("All numbers", _table(names, parties, measure)), more,
    )  # fmt: skip


def _chart(names: Sequence[str], drops: Mapping[str, float], parties: Mapping[str, Any], measure: str) -> Html:
    """A bar from 0 for each party, with its interval if the file has one."""

    def say(value: float) -> str:
        return f"{value:.4f}" if measure in _PLAIN else f"{100 * value:.2f}"

    bars = []
    for name in names:
        ends = parties[name].get("interval")
        low, high = (_number(ends[0]), _number(ends[1])) if isinstance(ends, list) and len(ends) == 2 else (None, None)
        bars.append(Bar(name, drops[name], say(drops[name]), low, high, 6 if parties[name].get("told") is False else 1))
    unit = "" if measure in _PLAIN else "points of "
    caption = f"{unit}{_MEASURES[measure]} lost without the party, with what chance may make of it"
    return row_chart(bars, Axis("", say), caption=caption[:1].upper() + caption[1:])


def _table(names: Sequence[str], parties: Mapping[str, Any], measure: str) -> Html:
    known = [key for key in _COLUMNS if any(_value(parties[name], key) is not None for name in names)]
    rows = [(name, *(_said(key, _value(parties[name], key), measure) for key in known)) for name in names]
    heads = ("party", *(_COLUMNS[key].format(_MEASURES[measure]) for key in known))
    return table(heads, rows, caption="By what is lost without a party, the most first")


def _value(party: Mapping[str, Any], key: str) -> object:
    return party.get(key, party.get(f"accuracy_{key}"))  # key of version 0.2


def _said(key: str, value: object, measure: str) -> str:
    number = _number(value)
    if number is None:
        return "-"
    share = key == "gain" or (key in ("noised", "missing") and measure not in _PLAIN)
    return percent(number) if share else plain(number)


def _number(value: object) -> float | None:
    return float(value) if is_number(value) else None
