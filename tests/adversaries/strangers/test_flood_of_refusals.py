"""Strangers connect without end: the log grows by lines that count them, at a rate that does not depend on theirs.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.conversation.parcels import Hello
from colonnade.common.errors import RefusedError
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.rate_limit import CAPS, Digest
from colonnade.reports.console.progress import PartyProgress, Progress
from colonnade.reports.console.screen import Screen
from colonnade.server.member.training import ServerMetrics
from tests.server.stage import FakeConnection, hello, stage

LINE = 10_000
"""Bytes that a line may have at most, whatever strangers write."""

PER_DAY = (CAPS["refused"].first + 24 * 60) * LINE
"""Bytes a day and flow, as docs/port.md states it: 15 MB."""


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_three_thousand_connections_in_a_second_are_a_few_lines_and_all_are_counted(tmp_path: Path) -> None:
    clock, heard = Clock(), list[Event]()
    telemetry = Telemetry(tmp_path / "events.jsonl", heard.append, clock=clock)
    for number in range(3000):
        clock.now += 0.0003
        telemetry.refused("unknown", "it does not speak TLS" if number % 3 else "it showed no certificate")
    assert len(lines(tmp_path / "events.jsonl")) == CAPS["refused"].first and len(heard) == 3000
    telemetry.close()
    *first, last = lines(tmp_path / "events.jsonl")
    assert last["count"] + len(first) == 3000 and all("count" not in event for event in first)
    assert last["reason"] == "2980 more: it does not speak TLS (1987); it showed no certificate (993)"
    assert last["since"] == pytest.approx(1e9 + 0.0063)


def test_a_day_of_the_worst_stays_below_the_bound_that_is_stated(tmp_path: Path) -> None:
    clock = Clock()
    telemetry = Telemetry(tmp_path / "events.jsonl", clock=clock)
    hours, rate = 3, 1.0
    for number in range(int(hours * 3600 / rate)):
        clock.now += rate
        telemetry.refused(
            chr(0x1F600) * 80, f"{number % 7}" + chr(0x1F600) * 4000, "ipv6:%5Bfe80::1%5D:65535" + "9" * 56
        )
    written = lines(tmp_path / "events.jsonl")
    assert len(written) <= CAPS["refused"].first + hours * 60 + 1
    assert max(map(len, (tmp_path / "events.jsonl").read_text().splitlines())) < LINE
    assert (tmp_path / "events.jsonl").stat().st_size < PER_DAY * hours / 24
    assert sum(event.get("count", 1) for event in written) >= hours * 3600 / rate - 60


def test_many_claimed_names_under_one_certificate_share_one_rate_limit(tmp_path: Path) -> None:
    clock = Clock()
    telemetry = Telemetry(tmp_path / "events.jsonl", clock=clock)
    for number in range(2000):
        telemetry.refused(f"nobody{number}", f"no party 'nobody{number}' is in the roster", f"ipv4:10.0.0.1:{number}")
        telemetry.refused("unknown", "it showed no certificate")
    telemetry.refused("ada", "it sent Hello out of turn")
    written = lines(tmp_path / "events.jsonl")
    assert len(written) == 2 * CAPS["refused"].first + 1 and written[-1]["party"] == "ada"
    clock.now += 61
    telemetry.event("round", round=1)
    counted = [event for event in lines(tmp_path / "events.jsonl") if "count" in event]
    assert [event["count"] for event in counted] == [1980, 1980]
    assert counted[0]["addresses"] == ["ipv4:10.0.0.1:20", "ipv4:10.0.0.1:21", "ipv4:10.0.0.1:22"]
    assert counted[0]["reason"].endswith("; other reasons (1977)")


def test_a_quiet_port_logs_every_refusal() -> None:
    clock, heard = Clock(), list[Event]()
    digest = Digest(heard.append, clock)
    events = [{"kind": "refused", "time": clock.now, "party": "unknown", "reason": f"{n}"} for n in range(100)]
    for event in events:
        clock.now += CAPS["refused"].period + 1e-3
        digest(event)
    assert heard == events


def test_other_events_pass_at_any_rate_and_in_their_order() -> None:
    heard = list[Event]()
    digest = Digest(heard.append, Clock())
    events = [{"kind": kind, "time": 0.0, "round": n} for n in range(5000) for kind in ("round", "missing")]
    for event in events:
        digest(event)
    assert heard == events


def test_the_console_prints_no_more_than_the_file() -> None:
    clock, printed = Clock(), io.StringIO()
    screen = Screen(file=printed, width=300)
    telemetry = Telemetry(None, Digest(Progress(screen), clock), clock=clock)
    for _ in range(3000):
        telemetry.refused("unknown", "it does not speak TLS")
    clock.now += 61
    telemetry.refused("unknown", "it does not speak TLS")
    *first, last = printed.getvalue().splitlines()
    assert len(first) == CAPS["refused"].first and last.startswith("unknown: 2980 more: it does not speak TLS")


def test_a_server_that_lies_cannot_fill_a_partys_log(tmp_path: Path) -> None:
    clock, printed = Clock(), io.StringIO()
    screen = Screen(file=printed, width=300)
    telemetry = Telemetry(tmp_path / "events.jsonl", Digest(PartyProgress(screen, "ada"), clock), clock=clock)
    for number in range(20_000):  # it accepts, begins and hangs up, again and again
        clock.now += 0.005
        telemetry.event("join", party="ada")
        telemetry.event("begin", party="ada", round=0, rounds=10)
        telemetry.event("warning", party="ada", reason="x")
        telemetry.event("checkpoint", party="ada", round=number, rounds=10)
        telemetry.event("server_away", reason="server was lost: the connection was closed")
    written = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(printed.getvalue().splitlines()) <= len(written) <= 4 * (100 + 2) + 1000 + 101


def test_late_messages_of_a_member_are_counted_beyond_a_thousand(tmp_path: Path) -> None:
    telemetry = Telemetry(tmp_path / "events.jsonl", clock=Clock())
    for _ in range(5000):
        telemetry.event("late", party="ada", kind_of="Embedding", round=1, now=2)
    telemetry.event("late", party="bob", kind_of="Embedding", round=1, now=2)
    telemetry.event("end", status="completed", round=2)
    written = lines(tmp_path / "events.jsonl")
    assert len(written) == 1000 + 1 + 1 + 1
    assert sum(event.get("count", 1) for event in written if event.get("party") == "ada") == 5000


def test_the_metric_counts_every_refusal_at_once() -> None:
    class Sessions:
        class hub:
            class totals:
                parties = ("ada",)

    metrics = ServerMetrics(Sessions)  # type: ignore[arg-type]
    telemetry = Telemetry(None, metrics)
    for _ in range(3000):
        telemetry.refused("unknown", "it does not speak TLS")
    assert metrics.refused == 3000


async def test_a_refusal_at_hello_is_short_for_any_hello() -> None:
    there = stage()
    for first in (Hello("zoe" * 99, "test", "0"), RefusedError("x" * 9999)):
        await there.come(first)
    said = Hello("ada", "f" * 9999, "v" * 9999, config={f"key{n}" * 99: "x" for n in range(999)})
    await there.come(said)
    differing = Hello("ada", "test", hello().version, config=dict.fromkeys(map(str, range(9999)), ""))
    await there.come(differing)
    assert all(len(event["reason"]) <= 500 and len(event["party"]) <= 80 for event in there.logged("refused"))
    assert re.search(r"1007 and 100\d\d more", there.logged("refused")[-1]["reason"])


async def test_a_refused_stream_is_logged_with_its_address() -> None:
    there = stage()
    connection = FakeConnection()
    connection.address = "ipv4:203.0.113.7:40000"
    greeting = asyncio.create_task(there.hub.greet(connection, None))  # type: ignore[arg-type]
    connection.first.set_result(Hello("zoe", "test", "0"))
    await greeting
    assert there.logged("refused")[0]["address"] == "ipv4:203.0.113.7:40000"
