"""Importance of each party, as measured by `colonnade explain`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from colonnade.common.runtime.json_values import is_number
from colonnade.common.runtime.numbers import plain
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import listed, percent

_TITLE = "Importance of the parties"
_NOT_ASKED = (
    "Not measured. Where one machine has the folders of all members, ",
    tag("code", "colonnade explain RUN"),
    " measures it of a run that has ended, for protocols whose models it can take apart; this page then shows it.",
)
_MEASURES = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy"}
_COLUMNS = {"norm": "norm of its head", "growth": "over its first", "noised": "{}, its data noised",
            "missing": "{} without it"}  # fmt: skip


def importance(run: RecordedRun, beside: Path | None) -> Html:
    """The parties from the most important to the least, linked to the page of `explain`; or a note that it was not run.

    Args:
        beside: the folder that this page will lie in; None leaves the link out.
    """
    found = run.explained
    if found is None or not isinstance(ranked := found.get("ranked"), list) or not ranked:
        return section(_TITLE, tag("p", *_NOT_ASKED))
    names = [str(name) for name in ranked]
    said = f"By how much the model leans on them, from most to least: {listed(names, 10)}."
    page = RunFolder(run.folder).explained_page
    more = Html()
    if beside is not None and page.is_file():
        more = tag("p", "All about it: ", tag("a", page.name, href=quote(os.path.relpath(page, beside))))
    measure = found.get("measure")
    measure = measure if measure in _MEASURES else "accuracy"  # version 0.2 had no other, and did not name it
    return section(_TITLE, tag("p", said), _table(names, found.get("parties"), measure), more)


def _table(names: Sequence[str], parties: Any, measure: str) -> Html:
    """The numbers, and a bar of what is lost without a party; nothing where the file was altered."""
    if not isinstance(parties, Mapping) or not all(isinstance(parties.get(name), Mapping) for name in names):
        return Html()
    drops = [_number(parties[name].get("drop_missing")) or 0.0 for name in names]
    most = max(*drops, 1e-9)
    rows = [
        (name, _bar(max(drop, 0.0) / most), *(_said(key, _value(parties[name], key), measure) for key in _COLUMNS))
        for name, drop in zip(names, drops, strict=True)
    ]
    words = _MEASURES[measure]
    heads = ("party", f"{words} lost without it", *(head.format(words) for head in _COLUMNS.values()))
    return table(heads, rows, words=(0, 1), caption="The most important party first")


def _bar(share: float) -> Html:
    """A bar beside the numbers, which say the same."""
    shape = f'<rect class="here" width="{100 * share:.1f}" height="10"/>'
    return Html(f'<svg class="strip" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>')


def _value(party: Mapping[str, Any], key: str) -> object:
    return party.get(key, party.get(f"accuracy_{key}"))  # of version 0.2


def _said(key: str, value: object, measure: str) -> str:
    number = _number(value)
    if number is None:
        return "-"
    return percent(number) if key in ("noised", "missing") and measure != "auc" else plain(number)


def _number(value: object) -> float | None:
    return float(value) if is_number(value) else None
