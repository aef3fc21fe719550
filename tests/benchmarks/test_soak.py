"""The parts of the soak: its schedule, its links, and that its checks find what they are for."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.soak.__main__ import codes, errors
from benchmarks.soak.members import Life
from benchmarks.soak.page import MEANINGS, section
from benchmarks.soak.record import Rounds, Tail, slope
from benchmarks.soak.troubles import CALM, HARD, Links, troubles
from tests.support.patience import PATIENCE


def test_a_seed_makes_one_schedule() -> None:
    first, again, other = (list(islice(troubles(seed, 120), 100)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("minutes", [3, 15, 120])
def test_a_chapter_has_all_kinds_and_hard_ones_last(minutes: float) -> None:
    repeats = {3: 1, 15: 2, 120: 4}[minutes]
    chapter = list(islice(troubles(0, minutes), repeats * len(CALM) + len(HARD)))
    assert {trouble.kind for trouble in chapter} == CALM.keys() | HARD.keys() == MEANINGS.keys()
    if repeats > 1:
        calm = chapter[: -len(HARD)]
        unharmed = {"server", "party3", "party4"}
        assert not {"full", "full party", "kill all"} & {one.kind for one in calm}  # they end all processes
        assert all(not unharmed & set(one.members) for one in calm if one.kind in ("kill", "stop", "freeze"))


@contextmanager
def echo() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    threading.Thread(target=respond, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def respond(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while data := connection.recv(100):
            connection.sendall(data)


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def test_a_link_carries_holds_cuts_and_closes() -> None:
    with echo() as port, Links(port) as links:
        link = links.new()
        with dial(link.port) as connection:
            connection.sendall(b"carried")
            assert connection.recv(100) == b"carried"
            link.hold()
            connection.sendall(b"held")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            link.mend()
            connection.settimeout(PATIENCE)
            assert connection.recv(100) == b"held"
            link.cut()
            with pytest.raises(ConnectionResetError):
                connection.recv(100)
        link.close()
        with pytest.raises(ConnectionResetError), dial(link.port) as connection:
            assert connection.recv(100)
        link.mend()
        with dial(link.port) as connection:
            connection.sendall(b"again")
            assert connection.recv(100) == b"again"


def rounds(*events: dict) -> Rounds:
    seen = Rounds()
    for event in events:
        seen.take({"time": 1.0, **event})
    return seen


BEGIN, FIRST, SECOND = {"kind": "begin", "round": 0}, *({"kind": "round", "round": n, "loss": 1 / n} for n in (1, 2))


def test_rounds_go_back_to_a_checkpoint_and_nowhere_else() -> None:
    assert not rounds(BEGIN, FIRST, SECOND, BEGIN, FIRST, SECOND).broken
    assert rounds(BEGIN, FIRST, FIRST).broken == ["round 1 where round 2 was due"]
    assert rounds(BEGIN, SECOND).broken == ["round 2 where round 1 was due"]
    assert rounds(BEGIN, FIRST, {"kind": "begin", "round": 2}).broken


def test_a_repeated_round_with_another_loss_is_found() -> None:
    assert len(rounds(BEGIN, FIRST, BEGIN, {**FIRST, "loss": 0.9999999999999999}).broken) == 1


def test_a_tail_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []
    path.write_text('{"kind": "a"}\n{"kind"')
    assert list(tail.new()) == [{"kind": "a"}]
    path.write_text('{"kind": "a"}\n{"kind"\n{"kind": "b"}\n')
    assert list(tail.new()) == [{"kind": "b"}]  # what was torn is passed over


@pytest.mark.parametrize(("an_hour", "grows"), [(0.0, False), (30.0, True)])
def test_growth_is_told_from_noise_and_from_restarts(an_hour: float, grows: bool) -> None:
    noise = random.Random(1)
    samples = [
        {"time": 10.0 * n, "life": n // 150, "rss": 100 * (n // 150) + an_hour * n / 360 + noise.gauss(0, 0.5)}
        for n in range(600)
    ]
    found = slope(samples, "rss")
    assert found is not None
    assert found.low - 1 < an_hour < found.high + 1
    assert (found.low > 0.5) is grows


def test_short_processes_have_no_slope() -> None:
    assert slope([{"time": 10.0 * n, "life": 1, "rss": n} for n in range(60)], "rss") is None


def test_unforeseen_ends_and_lines_are_found(tmp_path: Path) -> None:
    lives = [Life("server", 1, 0.0, 1.0, code, ordered) for code, ordered in ((3, False), (1, False), (-9, True))]
    assert codes([*lives, Life("party1", 2, 0.0, 1.0, -11)])[1] == [
        "server ended with code 1 at 1.0",
        "party1 ended with code -11 at 1.0",
    ]
    log = tmp_path / "server.log"
    log.write_text("error: party1 was lost after round 17\n       a hint\nTraceback (most recent call last):\n")
    said, noise = errors({"server": log})
    assert said == {"party1 was lost after round N": 1}
    assert len(noise) == 1


def test_the_section_names_what_was_broken() -> None:
    trouble = {"kind": "kill", "members": ["party1"], "again": None}
    kinds = ("results", "ledgers", "rounds", "codes", "noise", "orphans", "growth")
    broken = {**{key: ["wrong"] for key in kinds}, "stuck": ["kill"], "parameters": ["party1"]}
    text = section(
        {
            "troubles": [trouble, {**trouble, "again": 2.0}], "members": {}, "broken": broken,
            "entries": 5, "repeats": 0, "version": "v", "machine": "m", "minutes": 3, "seed": 0, "rounds": 10,
            "rounds_done": 12, "sessions": 1, "codes": {"party1": {"0": 1}}, "compared": 5, "errors": {},
        }
    )  # fmt: skip
    assert "| 2 (1 without) | 2.0 s | 2.0 s |" in text
    assert "byte by byte: none." in text and text.count(": 1, such as wrong") == 6 and ": 1, such as kill" in text
    assert "Growth: not measured" in text
