"""Output of a comparison: the printed table, comparison.json, .csv, .md and .html."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from colonnade.common.run.files import write_kept
from colonnade.common.text import literal
from colonnade.common.version import VERSION
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import csv_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.standings.contender import Contender
from colonnade.reports.standings.page import ComparisonPage, ValueTable
from colonnade.reports.words import amount, counted, markdown_table
from colonnade.search.comparison.outcomes import CANNOT, DONE, ProtocolOutcome, ReferenceOutcome
from colonnade.search.metrics import SearchMetric

_TEXTS = ("protocol", "status", "settings", "tuning", "trials", "notes", "reason", "reference", "what", "at_chance")
_HEAD = (
    "protocol",
    "value",
    "with defaults",
    "gained",
    "gained, validation",
    "sent",
    "seconds",
    "protected by",
    "best values",
)
_WORDS = (0, 7, 8)
_NARROW = (0, 1, 2, 3, 5, 7)  # columns of a screen of less than `_WIDE` characters
_WIDE = 120
_INTERVALS = "± is half of the 95% interval of a value, from the test rows: smaller differences are not significant."
_CHOSEN = (
    "Tuned values were chosen by the validation rows: what they gained there is optimistic. Test rows were evaluated "
    "once with the defaults and once with the chosen values."
)


@dataclass
class ComparisonOutput:
    """Files of a comparison, written with the results so far.

    Args:
        goal: the metric; `why` gives the reason for it.
        data: about rows, classes and members.
        dropped: keys of the given configuration that no run uses.
        outcomes: protocols in the order of the files.
        references: models that no federation has.
    """

    folder: Path
    id: str
    goal: SearchMetric
    why: str
    data: Mapping[str, Any]
    dropped: tuple[str, ...]
    options: Mapping[str, Any]
    outcomes: list[ProtocolOutcome]
    references: list[ReferenceOutcome] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """Data and metric in one line."""
        rows = ", ".join(f"{self.data[part]} {part}" for part in ("train", "validation", "test"))
        positive = f", positive class {name}" if (name := self.data.get("positive")) else ""
        return f"{self.id}: {rows} rows; metric {self.goal.metric} ({self.why}){positive}"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [outcome.plain(self.goal) for outcome in self.outcomes]

    @property
    def reference_lines(self) -> list[dict[str, Any]]:
        return [found.plain(self.goal) for found in self.references]

    @property
    def page(self) -> ComparisonPage:
        """The page, with the rows in the chart's order, then excluded contenders."""
        standings = [one.contender(self.goal) for one in self.outcomes]
        standings += [one.contender(self.goal) for one in self.references]
        lines = {line["protocol"]: line for line in self.lines}
        page = ComparisonPage(
            f"{self.id}: comparison of protocols", self.goal.measure, self.data["test"], self.data["validation"],
            standings, ValueTable(_HEAD, []), notes=self._notes, facts=self._facts(),
        )  # fmt: skip
        ranked = page.ranked
        rows = [
            self._row(one, lines.get(one.name, {})) for one in [*ranked, *(s for s in standings if s not in ranked)]
        ]
        head = [self.goal.measure.name if name == "value" else name for name in _HEAD]
        return replace(page, values=ValueTable(head, rows, _WORDS))

    def write(self) -> None:
        page = self.page
        choice = page.choice
        record = {
            "version": VERSION, "id": self.id, "metric": self.goal.metric, "direction": self.goal.direction,
            "why": self.why, **self.options, "data": dict(self.data), "dropped": list(self.dropped),
            "recommended": choice.taken and choice.taken.name, "because": f"{choice.headline} {choice.reason}".strip(),
            "protocols": self.lines, "references": self.reference_lines,
        }  # fmt: skip
        for name, text in (
            ("comparison.json", json.dumps(record, indent=2) + "\n"),
            ("comparison.csv", self._csv()),
            ("comparison.md", self._markdown(page)),
            ("comparison.html", page.html()),
        ):
            write_kept(self.folder / name, text.encode())

    def words(self, outcome: ProtocolOutcome) -> str:
        line, say = outcome.plain(self.goal), self.goal.measure.say
        if outcome.status == CANNOT:
            return f"cannot: {outcome.reason}"
        said = f"{say(line['defaults_test'])} with defaults" if outcome.status == DONE else outcome.status
        if outcome.searched and outcome.tuned:
            said += f", {say(line['tuned_test'])} tuned"
            said += f" ({self.goal.measure.gap(line['gap_test'])})" if line["gap_test"] is not None else ""
        return f"test {self.goal.measure.name} {said}"

    def show(self) -> None:
        """Prints the table, the recommendation, excluded contenders, and the page's path."""
        page, narrow = self.page, console.room is not None and console.room < _WIDE
        shown, taken = page.values.full(_NARROW if narrow else range(len(_HEAD))), page.choice.taken
        title = f"{self.goal.measure.name} on {self.data['test']:,} test rows, with 95% intervals"
        made = Grid(*shown.head, title=title)
        for row in shown.rows:
            made.add_row(*map(str, row), style="bold" if taken is not None and row[0] == taken.name else "")
        console.show(made)
        console.say(page.choice.headline, "bold")
        if page.choice.reason:
            console.say(page.choice.reason)
        for name, _, cause in page.set_apart:
            console.say(f"set apart: {name}: {cause}", "yellow")
        for name, said in (self._tuned_values() if narrow else []) + self._beside_defaults():
            console.say(f"{name}: {said}", "dim")
        if self.dropped:
            console.say(f"left out of the file: {', '.join(self.dropped)}", "dim")
        for said in self._notes:
            console.say(said, "dim")
        console.point("page", self.folder / "comparison.html")

    def arrow(self) -> pa.Table:
        return _arrow(self.lines)

    def arrow_references(self) -> pa.Table:
        return _arrow(self.reference_lines)

    def _row(self, one: Contender, line: Mapping[str, Any]) -> tuple[str, ...]:
        tuned = line.get("tuned_test") is not None
        return (
            one.name, self.goal.measure.said(one.test), self.goal.measure.say(line["defaults_test"]) if tuned else "-",
            *(self.goal.measure.gap(line.get(key)) for key in ("gap_test", "gap_val")),
            amount(one.sent) if one.sent else "-", f"{one.seconds:.1f}" if one.seconds else "-",
            "-" if one.reference else one.protection.words,
            in_short(line.get("settings") or "") or line.get("tuning") or "-",
        )  # fmt: skip

    def _tuned_values(self) -> list[tuple[str, str]]:
        """Tuned values, for which a narrow table has no room."""
        return [(line["protocol"], f"tuned: {in_short(line['settings'])}") for line in self.lines if line["settings"]]

    def _beside_defaults(self) -> list[tuple[str, str]]:
        return [(outcome.name, "; ".join(outcome.notes)) for outcome in self.outcomes if outcome.notes]

    @property
    def _notes(self) -> list[str]:
        waiting = [outcome.name for outcome in self.outcomes if outcome.status == "waiting"]
        said = (
            [f"Not run yet: {', '.join(waiting)}. The recommendation is of those that have ended."] if waiting else []
        )
        return [*said, *([_CHOSEN] if self.options["trials"] else []), _INTERVALS]

    def _facts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return [
            ("Data", self._about()),
            ("References", [(found.title, found.words) for found in self.references]),
            ("Beside the defaults", self._beside_defaults()),
        ]

    def _about(self) -> list[tuple[str, str]]:
        classes = self.data["classes"]
        return [
            ("rows", ", ".join(f"{self.data[part]} {part}" for part in ("train", "validation", "test"))),
            ("members", ", ".join(f"{name} {shape}" for name, shape in self.data["members"].items())),
            ("training rows of each class", ", ".join(map(str, classes))) if classes
            else ("numbers to be predicted", str(self.data["targets"])),
            ("metric", f"{self.goal.measure.name} ({self.why})"),
            *([("positive class", self.data["positive"])] if self.data.get("positive") else []),
            ("search", f"{counted(self.options['trials'], 'trial')} each, {counted(self.options['seeds'], 'seed')}"),
            ("left out of the file", ", ".join(self.dropped) or "nothing"),
            ("version", VERSION),
        ]  # fmt: skip

    def _markdown(self, page: ComparisonPage) -> str:
        choice, full = page.choice, page.values.full()
        lines = [
            f"# {literal(page.title)}",
            "",
            f"**{literal(choice.headline)}** {literal(choice.reason)}",
            "",
        ]
        lines += [f"{literal(self.heading)}.", "", markdown_table(full.head, full.rows, full.words), ""]
        apart = [(name, cause) for name, _, cause in page.set_apart]
        for title, pairs in (("Set apart", apart), *page.facts):
            if pairs:
                lines += [
                    f"## {title}",
                    "",
                    *(f"- **{literal(name)}**: {literal(text)}" for name, text in pairs),
                    "",
                ]
        return "\n".join([*lines, *self._notes, ""])

    def _csv(self) -> str:
        keys = list(ProtocolOutcome("").plain(self.goal))
        references = [
            {
                "protocol": f"reference: {found['reference']}", "status": found["status"], "seconds": found["seconds"],
                "defaults_val": found["val"], "defaults_test": found["test"], "reason": found["reason"],
                "defaults_error": found["error"], "at_chance": found["at_chance"],
            }
            for found in self.reference_lines
        ]  # fmt: skip
        rows = ([self.goal.metric, *(line.get(key) for key in keys)] for line in (*self.lines, *references))
        return csv_text([["metric", *keys], *rows])


def in_short(settings: str) -> str:
    """Shortens the keys of settings to what identifies them: `party lr=0.1 batch=64`."""
    for word, short in (("every_party.", "party "), ("federation.", ""), ("protocol.", ""), ("optimiser.", "")):
        settings = settings.replace(word, short)
    return settings.replace("active.", "active ").replace("server.", "server ").replace("head_", "head ")


def _arrow(lines: list[dict[str, Any]]) -> pa.Table:
    keys = list(lines[0]) if lines else []
    types = {key: pa.string() if key in _TEXTS else pa.float64() for key in keys}
    return pa.table({key: pa.array([line[key] for line in lines], types[key]) for key in keys})
