"""Presence of the parties over time, from a run's events."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from colonnade.common.observability.telemetry import Event
from colonnade.common.run.json_text import read_lines


def timeline(events: Path, parties: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Presence of every party, from the run's events.jsonl."""
    return follow(read_lines(events), parties)


def follow(events: Iterable[Event], parties: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Presence of every party, from events in their order.

    An entry has `what` (here, away, missing), `from` and `to` in seconds since the run's first event (`to` is null
    while it lasts), and for `missing` the first and last of consecutive missed `rounds`.
    """
    spans: dict[str, list[dict[str, Any]]] = {party: [] for party in parties}
    begin: float | None = None
    for event in events:
        begin = event["time"] if begin is None else begin
        now = round(event["time"] - begin, 3)
        mine = spans.get(str(event.get("party")))
        match event["kind"]:
            case "join" if mine is not None and "joined" in event:
                _next(mine, "here", now)
            case "leave" | "failed" if mine is not None:
                _next(mine, "away", now)
            case "missing" if mine is not None:
                _missed(mine, event["round"], now)
            case "end":
                for party in parties:
                    _end(spans[party], now)
    return spans


def _next(spans: list[dict[str, Any]], what: str, now: float) -> None:
    _end(spans, now)
    spans.append({"what": what, "from": now, "to": None})


def _missed(spans: list[dict[str, Any]], round: int, now: float) -> None:
    if spans and spans[-1]["what"] == "missing" and spans[-1]["rounds"][1] >= round - 1:
        spans[-1]["rounds"][1], spans[-1]["to"] = round, now
    else:
        spans.append({"what": "missing", "from": now, "to": now, "rounds": [round, round]})


def _end(spans: list[dict[str, Any]], now: float) -> None:
    for span in spans:
        if span["to"] is None:
            span["to"] = now
