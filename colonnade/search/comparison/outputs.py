"""Output of a comparison: the printed table, comparison.json, .csv, .md and .html."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from rich.table import Table

from colonnade.common.escaped import plain
from colonnade.common.run.durable import write_kept
from colonnade.common.version import VERSION
from colonnade.reports.console.screen import out as console
from colonnade.reports.html.frame import contents, facts, frame, section, table
from colonnade.reports.html.markup import tag
from colonnade.reports.words import counted
from colonnade.search.comparison.kept_runs import DONE
from colonnade.search.comparison.outcomes import CANNOT, SHARES, ProtocolOutcome, ReferenceOutcome
from colonnade.search.metrics import SearchMetric

_TEXTS = ("protocol", "status", "settings", "tuning", "trials", "notes", "reason", "reference", "what", "at_chance")


@dataclass
class ComparisonOutput:
    """Files of a comparison, written with the results so far.

    Args:
        id: of the federation.
        goal: the metric; `why` gives the reason for it.
        data: about rows, classes and members.
        dropped: keys of the given configuration that no run uses.
        options: of the command.
        outcomes: protocols in the order of the table.
        references: models of the joined columns.
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

    def write(self) -> None:
        record = {
            "version": VERSION, "id": self.id, "metric": self.goal.metric, "direction": self.goal.direction,
            "why": self.why, **self.options, "data": dict(self.data), "dropped": list(self.dropped),
            "protocols": self.lines, "references": self.reference_lines,
        }  # fmt: skip
        for name, text in (
            ("comparison.json", json.dumps(record, indent=2) + "\n"),
            ("comparison.csv", self._csv()),
            ("comparison.md", self._markdown()),
            ("comparison.html", self._html()),
        ):
            write_kept(self.folder / name, text.encode())

    def words(self, outcome: ProtocolOutcome) -> str:
        line = outcome.plain(self.goal)
        if outcome.status == CANNOT:
            return f"cannot: {outcome.reason}"
        said = f"{self._value(line['defaults_test'])} with defaults" if outcome.status == DONE else outcome.status
        if outcome.searched and outcome.tuned:
            said += f", {self._value(line['tuned_test'])} tuned"
            said += f" ({self._gap(line['gap_test'])})" if line["gap_test"] is not None else ""
        return f"test {self.goal.metric} {said}"

    def show(self) -> None:
        """Prints the table, the reasons, and the files' paths."""
        console.print(self.heading, markup=False, soft_wrap=True)
        made = Table(title=f"{self.goal.metric} of test rows")
        narrow = console.width < _WIDE
        shown = _NARROW if narrow else [place for place in range(len(_HEAD)) if place != _GAP_VALIDATION]
        for place in shown:
            justify: Literal["left", "right"] = "left" if place in _WORDS else "right"
            made.add_column(
                _HEAD[place],
                justify=justify,
                overflow="fold",
                no_wrap=place != _SETTINGS,
                min_width=16 if place == _SETTINGS else None,
            )
        rows = self._rows()
        for row in rows:
            cells = [*row]
            if narrow and row[_STATUS] != DONE:
                cells[_DEFAULTS] = row[_STATUS]  # the status column does not fit
            made.add_row(*(cells[place] for place in shown))
        console.print(made)
        if any(row[_AT_CHANCE] != "-" for row in rows):
            console.print(_MEANING, style="yellow", markup=False, soft_wrap=True)
        if narrow:
            self._show_values()
        for name, why in self._reasons():
            console.print(f"{name}: {why}", style="yellow", markup=False, soft_wrap=True)
        for name, said in self._notes():
            console.print(f"{name}: {said}", style="dim", markup=False, soft_wrap=True)
        if self.dropped:
            console.print(f"left out of the file: {', '.join(self.dropped)}", style="dim", markup=False, soft_wrap=True)
        console.print(_CHOSEN, style="dim", markup=False, soft_wrap=True)
        console.print(f"page: {self.folder / 'comparison.html'}", markup=False, soft_wrap=True)

    def _show_values(self) -> None:
        """Prints the tuned values, for which a narrow table has no room."""
        for line in self.lines:
            if line["settings"]:
                said = f"{line['protocol']} tuned: {in_short(line['settings'])}"
                console.print(said, style="dim", markup=False, soft_wrap=True)

    def arrow(self) -> pa.Table:
        return _arrow(self.lines)

    def arrow_references(self) -> pa.Table:
        return _arrow(self.reference_lines)

    def fragment(self) -> str:
        """The table as HTML, for notebooks."""
        return str(tag("p", self.heading) + table(_HEAD, self._rows(), words=_WORDS))

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for line in self.lines:
            tuned = line["tuned_test"] is not None
            sent = line["tuned_bytes" if tuned else "bytes"]
            seconds = line["tuned_seconds" if tuned else "seconds"]
            rows.append((
                line["protocol"], self._value(line["defaults_test"], line["defaults_error"]),
                self._value(line["tuned_test"], line["tuned_error"]),
                self._gap(line["gap_test"]), self._gap(line["gap_val"]), line["at_chance"] or "-", line["status"],
                in_short(line["settings"]) or line["tuning"] or "-",
                "-" if not seconds else f"{seconds:.1f}", "-" if sent is None else f"{sent / 1e6:.2f}",
            ))  # fmt: skip
        for found in self.reference_lines:
            value, seconds = self._value(found["test"], found["error"]), found["seconds"]
            chance, status = found["at_chance"] or "-", found["status"]
            rows.append((found["reference"], value, "-", "-", "-", chance, status, "reference",
                         f"{seconds:.1f}" if seconds else "-", "-"))  # fmt: skip
        return rows

    def _value(self, value: float | None, error: float | None = None) -> str:
        """A value, with its standard error if known."""
        if value is None:
            return "-"
        if error is not None and abs(value) < _HUGE:
            return f"{self._value(value)} ±{self._value(error)}"
        if self.goal.metric in SHARES and abs(value) < _HUGE:
            return f"{100 * value:.2f}"
        return f"{100 * value:.2g}" if self.goal.metric in SHARES else f"{value:.4g}"

    def _gap(self, value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:+.2f}" if self.goal.metric in SHARES and abs(value) < 100 * _HUGE else f"{value:+.4g}"

    def _reasons(self) -> list[tuple[str, str]]:
        found = [(outcome.name, f"{outcome.status}: {outcome.reason}") for outcome in self.outcomes if outcome.reason]
        return found + [(each.name, each.run.reason) for each in self.references if each.run.reason]

    def _notes(self) -> list[tuple[str, str]]:
        return [(outcome.name, "; ".join(outcome.notes)) for outcome in self.outcomes if outcome.notes]

    def _about(self) -> list[tuple[str, str]]:
        unit = "in hundredths; gaps in points" if self.goal.metric in SHARES else "in its own units"
        classes = self.data["classes"]
        return [
            ("rows", ", ".join(f"{self.data[part]} {part}" for part in ("train", "validation", "test"))),
            ("members", ", ".join(f"{name} {shape}" for name, shape in self.data["members"].items())),
            ("training rows of each class", ", ".join(map(str, classes))) if classes
            else ("numbers to be predicted", str(self.data["targets"])),
            ("metric", f"{self.goal.metric} of test rows, {unit} ({self.why})"),
            *([("positive class", self.data["positive"])] if self.data.get("positive") else []),
            ("±", "one standard error of the value on test rows: other test rows differ by about so much"),
            ("at chance", _MEANING),
            ("search", f"{counted(self.options['trials'], 'trial')} each, {counted(self.options['seeds'], 'seed')}"),
            ("left out of the file", ", ".join(self.dropped) or "nothing"),
            ("version", VERSION),
        ]  # fmt: skip

    def _html(self) -> str:
        parts = [
            section("Table", table(_HEAD, self._rows(), words=_WORDS), tag("p", _CHOSEN, class_="note")),
            section("Data", facts(self._about())),
            section("References", facts((found.name, found.words) for found in self.references)),
            section("Reasons", facts(self._reasons())),
            section("Beside the defaults", facts(self._notes())),
            section("Values", table(_ALL, [[_cell(line[key]) for key in _ALL] for line in self.lines], words=(0, 1))),
        ]
        shown = [part for part in parts if part]
        return frame(f"{self.id}: comparison of protocols", [contents(shown), *shown])

    def _markdown(self) -> str:
        lines = [
            f"# {plain(self.id)}: comparison of protocols",
            "",
            f"{plain(self.heading)}.",
            "",
            *_marked(_HEAD, self._rows()),
        ]
        lines += ["", _CHOSEN, ""]
        for title, pairs in (
            ("Data", self._about()),
            ("References", [(found.name, found.words) for found in self.references]),
            ("Reasons", self._reasons()),
            ("Beside the defaults", self._notes()),
        ):
            if pairs:
                lines += [f"## {title}", "", *(f"- **{plain(name)}**: {plain(text)}" for name, text in pairs), ""]
        return "\n".join(lines)

    def _csv(self) -> str:
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        keys = list(ProtocolOutcome("").plain(self.goal))
        writer.writerow(["metric", *keys])
        for line in self.lines:
            writer.writerow([self.goal.metric, *(line[key] for key in keys)])
        for found in self.reference_lines:
            row = {
                "protocol": f"reference: {found['reference']}", "status": found["status"], "seconds": found["seconds"],
                "defaults_val": found["val"], "defaults_test": found["test"], "reason": found["reason"],
                "defaults_error": found["error"], "at_chance": found["at_chance"],
            }  # fmt: skip
            writer.writerow([self.goal.metric, *(row.get(key) for key in keys)])
        return made.getvalue()


_HEAD = (
    "protocol",
    "defaults",
    "tuned",
    "gap",
    "gap, validation",
    "at chance",
    "status",
    "best values",
    "seconds",
    "MB",
)
_WORDS = (0, 5, 6, 7)
_DEFAULTS, _GAP_VALIDATION, _AT_CHANCE, _STATUS, _SETTINGS = 1, 4, 5, 6, 7
_WIDE = 120  # least screen width for all columns, in characters
_NARROW = (0, 1, 2, 3, 5, 8)
_MEANING = (
    "at chance: the test rows do not show that the model is better than one that knows no column, by more than two "
    "standard errors"
)
_HUGE = 100.0  # an R2 as low as -100 is shown with fewer digits
_ALL = (
    "protocol", "status", "defaults_val", "defaults_test", "defaults_error", "tuned_val", "tuned_test", "tuned_error",
    "at_chance", "trials", "seconds",
    "tuned_seconds", "bytes", "tuned_bytes", "rounds",
)  # fmt: skip
_CHOSEN = (
    "Tuned values were chosen by the validation rows: their gap on validation rows is optimistic. Test rows were "
    "evaluated once with the defaults and once with the chosen values."
)


def in_short(settings: str) -> str:
    """Shortens the keys of settings to what identifies them: `party lr=0.1 batch=64`."""
    for word, short in (("every_party.", "party "), ("federation.", ""), ("protocol.", ""), ("optimiser.", "")):
        settings = settings.replace(word, short)
    return settings.replace("active.", "active ").replace("server.", "server ").replace("head_", "head ")


def _cell(value: Any) -> str:
    return "-" if value in (None, "") else f"{value:.4g}" if isinstance(value, float) else str(value)


def _marked(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---" if place in _WORDS else "--:" for place in range(len(head))]
    lines = ([plain(cell) for cell in head], marks, *([plain(cell) for cell in row] for row in rows))
    return [f"| {' | '.join(line)} |" for line in lines]


def _arrow(lines: list[dict[str, Any]]) -> pa.Table:
    keys = list(lines[0]) if lines else []
    types = {key: pa.string() if key in _TEXTS else pa.float64() for key in keys}
    return pa.table({key: pa.array([line[key] for line in lines], types[key]) for key in keys})
