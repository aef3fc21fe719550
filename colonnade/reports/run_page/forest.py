"""The forest of a run whose model is one: its trees, and what each party's columns gain and reveal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.reports.console.summary import forest_words, gradient_words
from colonnade.reports.html.frame import facts, folded, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import amount

FOREST_COLUMNS = ("gain of its splits", "nodes", "cuts revealed to the server")
_GAIN = "The gain of a split is what it takes off the loss of the training rows. Gain favours columns of many values."
_CUTS = (
    "Every cut that a tree uses tells the server on which side of it each row is. The server knows a column's number "
    "alone; its name and its cuts' values are in the party's own files."
)


def forest(run: RecordedRun) -> Html:
    """Nothing, unless the run's model is a forest."""
    found = run.summary.get("forest")
    if not isinstance(found, Mapping):
        return Html()
    about = [("trees", forest_words(found)), ("gradients", gradient_words(found)), ("bytes", tree_bytes(run.summary))]
    rows = [(name, *forest_columns(own)) for name, own in found["parties"].items()]
    parties = table(("party", *FOREST_COLUMNS), rows, caption="Splits of every party", words=(0,))
    columns = [
        (name, str(number), f"{column['revealed']} of {column['cuts']}")
        for name, own in found["parties"].items()
        for number, column in enumerate(own["columns"])
    ]
    each = table(("party", "column", "cuts revealed"), columns, caption="Cuts of every column", words=(0,))
    return section("Forest", facts(about), parties, tag("p", _GAIN), tag("p", _CUTS), folded("Column by column", each))


def forest_columns(own: Mapping[str, Any]) -> tuple[str, str, str]:
    """What `FOREST_COLUMNS` say of a party."""
    revealed, cuts = (sum(column[key] for column in own["columns"]) for key in ("revealed", "cuts"))
    return f"{own['gain']:.1%}", str(own["nodes"]), f"{revealed} of {cuts}"


def tree_bytes(summary: Mapping[str, Any]) -> str:
    """Mean traffic of a round."""
    rounds = max(summary["rounds"], 1)
    down, up = (amount(summary["bytes"][way]["payload"] / rounds) for way in ("down", "up"))
    return f"{down} to the parties and {up} to the server a round, tables of bins included"
