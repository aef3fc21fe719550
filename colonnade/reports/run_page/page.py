"""Assembles report.html and comparison.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.html.frame import SCRIPT, contents, frame, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import configuration, environment, opening
from colonnade.reports.run_page.charts import charts
from colonnade.reports.run_page.comparison import comparison_page
from colonnade.reports.run_page.forest import forest
from colonnade.reports.run_page.importance import importance
from colonnade.reports.run_page.presence import presence
from colonnade.reports.run_page.privacy import privacy
from colonnade.reports.run_page.quality import quality
from colonnade.reports.run_page.thresholds import thresholds
from colonnade.reports.run_page.traffic import traffic
from colonnade.reports.words import seconds


def write_page(runs: Sequence[RecordedRun], out: Path | None = None, again: float = 0) -> Path:
    """Writes the page of a run, or of several compared, and returns its absolute path.

    Args:
        runs: at least one.
        out: default: report.html in the run's folder, or comparison.html in the first run's.
        again: seconds after which a browser reloads the page; 0 for never.
    """
    places = [run.folder.resolve() for run in runs]
    if twice := [run.folder for run, place in zip(runs, places, strict=True) if places.count(place) > 1]:
        raise InputError(f"{twice[0]} is named twice", hint="a run is compared with others")
    first = RunFolder(runs[0].folder)
    page = (out or (first.report if len(runs) == 1 else first.comparison)).resolve()
    if page.is_dir():
        raise InputError(f"--out {out}: expected a file, this is a folder", hint=f"{RunFolder(page).report}")
    make_folder(page.parent)
    write_text(page, html(runs, page.parent, again))
    return page


def short_page(run: RecordedRun) -> str:
    title = str(run.summary.get("federation") or run.name)
    return frame(title, [opening(run), charts({run.name: run})], SCRIPT)


def html(runs: Sequence[RecordedRun], beside: Path | None, again: float = 0, *, live: str = "") -> str:
    """The page of a run, or of several compared.

    Args:
        runs: at least one.
        beside: folder of the page; None for a page that is served, without links to files.
        again: seconds after which a browser reloads it; 0 for never.
        live: JavaScript that reloads a served page.
    """
    return _one(runs[0], beside, again, live) if len(runs) == 1 else comparison_page(runs)


def _one(run: RecordedRun, beside: Path | None, again: float, live: str) -> str:
    sections = [
        charts({run.name: run}),
        quality(run),
        thresholds(run),
        presence(run),
        incidents(run),
        traffic(run),
        privacy(run),
        forest(run),
        importance(run, beside),
        configuration(run),
        environment(run),
    ]
    title = f"{run.summary.get('federation') or run.name}: report"
    return frame(title, [opening(run), contents(sections), *sections], SCRIPT + live, again, live=bool(live))


_MOST = 100
_WORDS = {
    "refused": "was turned away",
    "failed": "failed",
    "leave": "left",
    "rejoin": "came back",
    "rollback": "was lost: back to a checkpoint",
    "diverged": "diverged",
    "back_off": "made everyone go back, with lower rates",
    "resume": "went on",
    "warning": "warned",
    "checkpoint_failed": "could not save",
    "stopped": "stopped the run",
    "server_away": "lost the server",
    "revocations": "could not read the revocations",
}


def incidents(run: RecordedRun) -> Html:
    """A table in order of time; nothing for a run without failures."""
    found = sorted(
        (event for event in [*run.events, *run.incidents] if event["kind"] in _WORDS), key=lambda event: event["time"]
    )
    rows = [
        (seconds(run.clock.seconds(event["time"])), event.get("party", SERVER), _WORDS[event["kind"]], _why(event))
        for event in found[:_MOST]
    ]
    if not rows:
        return Html()
    more = len(found) - len(rows)
    note = tag("p", f"{more} more stand in events.jsonl.", class_="faint") if more else Html()
    title = "Incidents"
    return section(title, table(("when", "who", "what", "why"), rows, words=(1, 2, 3), caption="In order"), note)


def _why(event: Event) -> str:
    said = str(event.get("reason", ""))
    at = f"round {event['round']}" if event.get("round") else ""
    return ": ".join(filter(None, (at, said)))
