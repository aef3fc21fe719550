"""Presence of parties over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from colonnade.server.member.timeline import timeline


def written(path: Path, *events: tuple[float, str, dict[str, Any]]) -> Path:
    lines = [json.dumps({"kind": kind, "time": 1000 + time, **more}) for time, kind, more in events]
    path.write_text("\n".join(lines) + '\n{"cut sho')
    return path


def test_a_party_that_was_away_and_came_back(tmp_path: Path) -> None:
    ada = {"party": "ada"}
    events = written(
        tmp_path / "events.jsonl",
        (0, "listening", {}),
        (1, "join", {**ada, "joined": 1}),
        (1.5, "join", {"party": "bob", "joined": 2}),
        (3, "missing", {**ada, "round": 4}),
        (4, "missing", {**ada, "round": 5}),
        (6, "missing", {**ada, "round": 7}),
        (7, "leave", {**ada, "reason": "x"}),
        (9, "join", {**ada, "joined": 2}),
        (12, "end", {}),
    )
    assert timeline(events, ("ada", "bob", "cyd")) == {
        "ada": [
            {"what": "here", "from": 1, "to": 7},
            {"what": "missing", "from": 3, "to": 4, "rounds": [4, 5]},
            {"what": "missing", "from": 6, "to": 6, "rounds": [7, 7]},
            {"what": "away", "from": 7, "to": 9},
            {"what": "here", "from": 9, "to": 12},
        ],
        "bob": [{"what": "here", "from": 1.5, "to": 12}],
        "cyd": [],
    }


def test_a_run_without_events_has_an_empty_timeline(tmp_path: Path) -> None:
    assert timeline(tmp_path / "none", ("ada",)) == {"ada": []}
