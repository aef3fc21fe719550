"""Assembles report.html and comparison.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.outputs import output_file, write_text
from colonnade.reports.html.page import render, script
from colonnade.reports.records.ledgers import refuse_lost
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import answer, cards, described, notes
from colonnade.reports.run_page.charts import TEMPLATES, charts
from colonnade.reports.run_page.comparison import comparison_page
from colonnade.reports.run_page.parties import forest, importance, traffic
from colonnade.reports.run_page.presence import presence
from colonnade.reports.run_page.privacy import privacy
from colonnade.reports.run_page.quality import quality
from colonnade.reports.words import seconds

SCRIPT = script("page.js")
"""Switches axes, and shows values under the pointer; a page can be read without it."""


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
    for run in runs:
        refuse_lost(run.folder, run.parties)
    first = RunFolder(runs[0].folder)
    page = output_file(out, first.report if len(runs) == 1 else first.comparison)
    write_text(page, html(runs, page.parent, again))
    return page


def html(runs: Sequence[RecordedRun], beside: Path | None, again: float = 0, *, live: str = "") -> str:
    """The page of a run, or of several compared.

    Args:
        runs: at least one.
        beside: folder of the page; None for a page that is served, without links to files.
        again: seconds after which a browser reloads it; 0 for never.
        live: JavaScript that reloads a served page.
    """
    if len(runs) > 1:
        return comparison_page(runs)
    run = runs[0]
    values = {
        **_opening(run),
        "title": f"{run.summary.get('federation') or run.name}: report",
        "quality": quality(run),
        "presence": presence(run),
        "incidents": _incidents(run),
        "traffic": traffic(run),
        "privacy": privacy(run),
        "forest": forest(run),
        "importance": importance(run, beside),
        "config": run.config,
        "environment": _environment(run),
    }
    return render("run.html", values, beside=TEMPLATES, script=SCRIPT + live, again=again, live=bool(live))


def short_page(run: RecordedRun) -> str:
    """The first screen and the curves, for notebooks."""
    title = str(run.summary.get("federation") or run.name)
    return render("short.html", {**_opening(run), "title": title}, beside=TEMPLATES, script=SCRIPT)


def _opening(run: RecordedRun) -> dict[str, Any]:
    return {
        "answer": answer(run),
        "described": described(run),
        "notes": notes(run),
        "cards": cards(run),
        "charts": charts(run),
    }


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


def _incidents(run: RecordedRun) -> dict[str, Any]:
    """Failures, absences and warnings in order of time."""
    found = sorted(
        (event for event in [*run.events, *run.incidents] if event["kind"] in _WORDS), key=lambda event: event["time"]
    )
    rows = [
        (seconds(run.clock.seconds(event["time"])), event.get("party", SERVER), _WORDS[event["kind"]], _why(event))
        for event in found[:_MOST]
    ]
    return {"rows": rows, "more": len(found) - len(rows)}


def _why(event: Event) -> str:
    said = str(event.get("reason", ""))
    at = f"round {event['round']}" if event.get("round") else ""
    return ": ".join(filter(None, (at, said)))


def _environment(run: RecordedRun) -> list[tuple[str, object]]:
    """Versions as recorded by the run's server, not those of this process."""
    known = run.summary.get("environment")
    rows: list[tuple[str, object]] = [("folder", run.name), ("federation", run.summary.get("federation", "not known"))]
    if isinstance(known, dict):
        return [*rows, *((str(name), value) for name, value in known.items())]
    ended = run.summary["status"] != "unfinished"
    return [*rows, ("versions", "not written down by this run" if ended else "written down at the run's end")]
