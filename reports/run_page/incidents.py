"""Failures in a run, and the reactions to them."""

from __future__ import annotations

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.observability.telemetry import Event
from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import seconds

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
