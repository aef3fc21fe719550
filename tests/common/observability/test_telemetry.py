"""Events: one JSON object a line, at once, and to all listeners."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from colonnade.common.observability.telemetry import Event, Telemetry


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = path.read_text() if path.exists() else ""
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_an_event_is_a_line_with_its_kind_and_time_before_the_call_returns(tmp_path: Path) -> None:
    telemetry, begin = Telemetry(tmp_path / "events.jsonl"), time.time()
    for round in (1, 2):
        telemetry.event("round", round=round, slowest={"party": "ada", "seconds": 0.25})
        assert [event["round"] for event in lines(tmp_path / "events.jsonl")] == list(range(1, round + 1))
    first = lines(tmp_path / "events.jsonl")[0]
    assert first["kind"] == "round" and first["slowest"] == {"party": "ada", "seconds": 0.25}
    assert begin - 1e-3 <= first["time"] <= time.time() + 1e-3


def test_every_listener_receives_the_written_events(tmp_path: Path) -> None:
    one: list[Event] = []
    two: list[Event] = []
    telemetry = Telemetry(tmp_path / "events.jsonl", one.append, two.append)
    returned = telemetry.event("join", party="ada")
    assert one == two == [returned] == lines(tmp_path / "events.jsonl")


def test_a_second_start_adds_to_the_file(tmp_path: Path) -> None:
    for _ in range(2):
        telemetry = Telemetry(tmp_path / "events.jsonl")
        telemetry.event("begin")
        telemetry.close()
    assert [event["kind"] for event in lines(tmp_path / "events.jsonl")] == ["begin", "begin"]


def test_a_text_of_several_lines_stays_one_line(tmp_path: Path) -> None:
    Telemetry(tmp_path / "events.jsonl").event("refused", reason="one\ntwo\u2028three\r\n")
    (event,) = lines(tmp_path / "events.jsonl")
    assert event["reason"] == "one\ntwo\u2028three\r\n"


def test_non_finite_numbers_are_written_as_null_and_passed_on_unchanged(tmp_path: Path) -> None:
    heard: list[Event] = []
    telemetry = Telemetry(tmp_path / "events.jsonl", heard.append)
    telemetry.event("round", loss=math.nan, slowest={"seconds": math.inf}, all=[1.0, -math.inf])
    (event,) = lines(tmp_path / "events.jsonl")
    assert (event["loss"], event["slowest"], event["all"]) == (None, {"seconds": None}, [1.0, None])
    assert math.isnan(heard[0]["loss"])


def test_after_its_end_only_listeners_hear(tmp_path: Path) -> None:
    heard: list[Event] = []
    telemetry = Telemetry(tmp_path / "events.jsonl", heard.append)
    telemetry.close()
    telemetry.event("leave", party="ada")
    assert len(heard) == 1 and not lines(tmp_path / "events.jsonl")


def test_without_a_file_listeners_hear_all_the_same() -> None:
    heard: list[Event] = []
    telemetry = Telemetry(None, heard.append)
    telemetry.event("join", party="ada")
    telemetry.close()
    assert [event["kind"] for event in heard] == ["join"]
