"""Metrics of a real run over gRPC, against the run's own files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.run.health import state
from colonnade.common.config.chaos import ChaosConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.json_text import read_lines
from tests.support.watched import Samples, Watched, config, value

pytestmark = pytest.mark.slow

VIMADMM = {"name": "vimadmm", "embedding": 16, "tau": 2}


def summary(run: Watched) -> dict[str, Any]:
    return dict(json.loads((run.home(SERVER) / "summary.json").read_text()))


def events(run: Watched, name: str) -> list[Event]:
    return list(read_lines(run.home(name) / "events.jsonl"))


def payload(shown: Samples, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(v for (name, of), v in shown.items() if name == "colonnade_payload_bytes_total" and wanted <= of)


def left(run: Watched, party: str) -> dict[str, int]:
    """Bytes by kind, by the party's ledger."""
    found: dict[str, int] = {}
    for line in read_lines(run.home(party) / "ledger.jsonl"):
        if "kind" in line:
            found[line["kind"]] = found.get(line["kind"], 0) + line["bytes"]
    return found


class Looked:
    """Reads all members in one round, and the server at the end, while all are paused."""

    def __init__(self, round: int) -> None:
        self._round = round
        self.amid: dict[str, Samples] = {}
        self.ledgers: dict[str, dict[str, int]] = {}
        self.end: Samples = {}

    def __call__(self, run: Watched, event: Event) -> None:
        if event["kind"] == "round" and event["round"] == self._round:
            for name in (SERVER, *run.config.federation.names):
                self.amid[name] = run.metrics(name)
            self.ledgers = {name: left(run, name) for name in run.config.federation.names}
        if event["kind"] == "end":
            self.end = run.metrics(SERVER)


def test_the_numbers_are_those_of_the_summary_and_the_ledgers(tmp_path: Path) -> None:
    looked = Looked(7)
    agreed = {"compress": {"up": 8, "down": 16}, "privacy": {"clip": 1.0, "noise_multiplier": 5.0}}
    run = Watched(config(VIMADMM, checkpoint={"rounds": 4}, **agreed), tmp_path, looked)
    run.run()
    whole, shown, parties = summary(run), looked.end, run.config.federation.names
    assert value(shown, "colonnade_rounds_total") == value(shown, "colonnade_round") == whole["rounds"] == 12
    assert value(shown, "colonnade_rounds_planned") == value(shown, "colonnade_checkpoint_round") == 12
    for way in ("up", "down"):
        for name in parties:
            assert payload(shown, direction=way, party=name) == whole["bytes"]["parties"][name][way]["payload"]
            wire = value(shown, "colonnade_wire_bytes_total", direction=way, party=name)
            assert 0 < wire <= whole["bytes"]["parties"][name][way]["wire"]  # the farewell may come after it
    for part, key in (("validation", "val"), ("test", "test")):
        assert value(shown, "colonnade_accuracy_ratio", part=part) == whole["metrics"][f"{key}_accuracy"]
        assert value(shown, "colonnade_loss", part=part) == whole["metrics"][f"{key}_loss"]
    assert value(shown, "colonnade_loss", part="training") == whole["metrics"]["train_loss"]
    assert value(shown, "colonnade_privacy_delta") == whole["delta"]
    assert value(shown, "colonnade_privacy_person_epsilon") == pytest.approx(whole["person"]["epsilon"], abs=1e-6)
    for name in parties:
        spent = value(shown, "colonnade_privacy_epsilon", party=name, adjacency="replace")
        assert spent == pytest.approx(whole["epsilon"][name], abs=1e-6)
        assert value(shown, "colonnade_missing_answers_total", party=name) == whole["missing"][name] == 0
        assert value(shown, "colonnade_late_answers_total", party=name) == whole["late"][name] == 0
    saved = [e["seconds"] for e in events(run, SERVER) if e["kind"] == "checkpoint"]
    assert value(shown, "colonnade_checkpoint_seconds_count") == len(saved)
    assert value(shown, "colonnade_checkpoint_seconds_sum") == pytest.approx(sum(saved))
    check_parties(looked)


def check_parties(looked: Looked) -> None:
    for name, ledger in looked.ledgers.items():
        own = looked.amid[name]
        assert set(ledger) == {"Embedding", "Evaluation"}  # the first epoch is over in round 6
        for kind, size in ledger.items():
            assert payload(own, direction="up", kind=kind) == size
        for kind in ledger:
            assert payload(looked.amid[SERVER], direction="up", party=name, kind=kind) == ledger[kind]
        assert value(own, "colonnade_messages_total", direction="down", party=name, kind="Update") == 6
        assert value(own, "colonnade_rounds_total") == value(own, "colonnade_round") == 6
        assert value(own, "colonnade_rounds_planned") == 12
        assert value(own, "colonnade_connected", party=name) == 1
        assert value(own, "colonnade_privacy_epsilon", party=name, adjacency="replace") > 0
        phases = {phase: value(own, "colonnade_round_seconds_sum", phase=phase) for phase in ("computing", "waiting")}
        assert all(seconds > 0 for seconds in phases.values())
    connected = {name: value(looked.amid[SERVER], "colonnade_connected", party=name) for name in looked.ledgers}
    assert set(connected.values()) == {1.0}


def test_the_phases_of_the_server_are_its_rounds(tmp_path: Path) -> None:
    """They sum to the rounds' own seconds, by another clock, and the time after the last one."""
    looked = Looked(0)
    run = Watched(config(VIMADMM), tmp_path, looked)
    run.run()
    logged = events(run, SERVER)
    (begin,) = [e["time"] for e in logged if e["kind"] == "begin"]
    (end,) = [e["time"] for e in logged if e["kind"] == "end"]
    names = ("computing", "waiting", "evaluation", "checkpoint")
    seconds = {phase: value(looked.end, "colonnade_round_seconds_sum", phase=phase) for phase in names}
    assert min(seconds.values()) > 0
    rounds = sum(e["seconds"] for e in logged if e["kind"] == "round")
    assert 0.5 * rounds < sum(seconds.values()) < 1.2 * (end - begin)
    assert {value(looked.end, "colonnade_round_seconds_count", phase=phase) for phase in names} == {12.0}


def test_missing_and_late_responses_are_counted_by_party(tmp_path: Path) -> None:
    looked = Looked(0)
    made = config(VIMADMM, quorum={"fastest": 3}, epochs=4)
    own = made.parties["party2"].model_copy(update={"chaos": ChaosConfig.model_validate({"delay": "50ms"})})
    run = Watched(made.model_copy(update={"parties": {**made.parties, "party2": own}}), tmp_path, looked)
    run.run()
    whole = summary(run)
    assert whole["missing"]["party2"] > 0 and whole["late"]["party2"] > 0
    for kind in ("missing", "late"):
        shown: Mapping[str, float] = {
            name: value(looked.end, f"colonnade_{kind}_answers_total", party=name) for name in whole[kind]
        }
        assert shown == whole[kind]


def test_there_is_no_epsilon_where_there_is_no_guarantee(tmp_path: Path) -> None:
    looked = Looked(0)
    seeded = {"clip": 1.0, "noise_multiplier": 50.0, "seeded": True}
    Watched(config(VIMADMM, privacy=seeded), tmp_path, looked).run()
    assert looked.end and not [name for name, _ in looked.end if "privacy" in name]


def test_health_through_the_life_of_a_server_and_a_party(tmp_path: Path) -> None:
    run = Watched(config({"name": "split", "embedding": 16}), tmp_path, lambda _run, _event: None)
    seen: dict[str, str] = {}

    async def look() -> None:
        there = {name: await _observed(run, name) for name in (SERVER, "party1")}
        await _until(lambda: bool(run.address))
        ask = lambda name, service: asyncio.to_thread(state, there[name], service)  # noqa: E731
        seen["server listens"] = await ask(SERVER, "colonnade")
        seen["party dials"] = await ask("party1", "colonnade")
        seen["party is up"] = await ask("party1", "")
        run.invited.add("party1")
        await _until(lambda: any(e["kind"] == "join" for e in events(run, "party1")))
        seen["party has joined"] = await ask("party1", "colonnade")  # the others are not here: nothing can end yet
        run.invited.update(run.config.federation.names)

    run.run(look)
    assert seen == {
        "server listens": "SERVING", "party dials": "NOT_SERVING", "party is up": "SERVING",
        "party has joined": "SERVING",
    }  # fmt: skip
    for name in (SERVER, "party1"):
        assert state(run.endpoint(name, "health"), "").startswith("no answer")


async def _observed(run: Watched, name: str) -> str:
    await _until(lambda: bool(events(run, name)))
    return run.endpoint(name, "health")


async def _until(there: Callable[[], bool]) -> None:
    while not there():  # noqa: ASYNC110  # it is a file that changes
        await asyncio.sleep(0.005)
