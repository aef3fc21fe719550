"""A tracker that is away, slow or broken: the run goes on, says so once, and the records come later."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.parsing.file import parse
from colonnade.common.tracking import listener
from colonnade.common.tracking.listener import Delivery, Tracking
from colonnade.common.tracking.tracker import TrackedRun
from tests.support.federation import tree
from tests.support.tracking import Recorder, RecorderConfig, run_tracked, with_trackers

SPLIT = parse(tree({"name": "split", "embedding": 8}, epochs=1))
ROUNDS = 6
LONG = 30.0  # seconds that nothing here takes


class Failing(RecorderConfig):
    """Fails the first `times` calls."""

    times: int = 0

    def before(self, call: tuple[Any, ...]) -> None:
        if self.times:
            object.__setattr__(self, "times", self.times - 1)
            raise ConnectionError("nobody there\n\x1b[31m" + "x" * 5000)


class Closed(RecorderConfig):
    """Cannot be opened."""

    def open(self, run: TrackedRun) -> Recorder:
        raise OSError(f"{run.member} may not")


class Stuck(RecorderConfig):
    """Its first call lasts until the test ends."""

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        object.__setattr__(self, "released", threading.Event())

    def before(self, call: tuple[Any, ...]) -> None:
        self.released.wait()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracking, "pauses", (0.01, 0.02))
    monkeypatch.setattr(Tracking, "patience", LONG)


def warnings(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == "warning"]


def test_all_records_arrive_in_order(tmp_path: Path) -> None:
    config = RecorderConfig()
    outcome, events = run_tracked(with_trackers(SPLIT, config), tmp_path / "run")
    got = config.last
    kinds = [call[0] for call in got.calls if call[0] != "flush"]
    assert kinds == ["begin", *["metrics"] * (len(kinds) - 3), "artefact", "end"]
    rounds = [(round, values["train_loss"]) for round, values in got.of("metrics") if "train_loss" in values]
    assert rounds == [(event["round"], event["loss"]) for event in outcome.of_kind("round")] and len(rounds) == ROUNDS
    last = {name: value for round, values in got.of("metrics") for name, value in values.items() if round == ROUNDS}
    assert {name: last[name] for name in outcome.server.metrics} == outcome.server.metrics
    assert got.of("end") == [("completed",)] and got.calls[-2] == ("flush",)
    assert not warnings(events)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_what_fails_is_sent_again_and_said_once(times: int, tmp_path: Path) -> None:
    plain, failing = RecorderConfig(), Failing(times=times)
    # Side by side one would be listed twice.
    run_tracked(with_trackers(SPLIT, plain), tmp_path / "plain")
    _, events = run_tracked(with_trackers(SPLIT, failing), tmp_path / "run")
    (said,) = warnings(events)
    assert said["reason"].startswith("server.trackers.0 (recorder) takes no records: ConnectionError: nobody there")
    assert said["hint"] and said["party"] == "server" and len(said["reason"]) < 500 and said["reason"].isprintable()
    assert failing.last.of("metrics") == plain.last.of("metrics") and failing.last.of("end") == [("completed",)]


def test_a_tracker_that_never_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracking, "patience", 0.2)
    outcome, events = run_tracked(with_trackers(SPLIT, Closed()), tmp_path / "run")
    assert len(outcome.of_kind("round")) == ROUNDS
    first, last = warnings(events)
    assert "takes no records: OSError: server may not" in first["reason"]
    # Of `begin`, every round, the evaluations, the summary's metrics and the summary.
    lost = 1 + ROUNDS + len(outcome.of_kind("evaluation")) + 2
    assert last["reason"] == f"server.trackers.0 (recorder): {lost} records were not delivered" and last["hint"]


def test_a_tracker_that_does_not_return_holds_up_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call never returns before the run has ended: a run that waited for it would not end."""
    monkeypatch.setattr(Tracking, "patience", 0.2)
    stuck = Stuck()
    try:
        outcome, events = run_tracked(with_trackers(SPLIT, stuck), tmp_path / "run")
        assert outcome.server.round == ROUNDS
        assert warnings(events)[0]["reason"].endswith("records were not delivered")
    finally:
        stuck.released.set()


def test_another_tracker_is_served_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(RecorderConfig):
        def identity(self) -> str:
            return "other"

    monkeypatch.setattr(Tracking, "patience", 0.5)
    stuck, other = Stuck(), Other()
    try:
        run_tracked(with_trackers(SPLIT, stuck, other), tmp_path / "run")
        assert other.last.of("end") == [("completed",)]
    finally:
        stuck.released.set()


def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST", 5)
    stuck = Stuck()
    made = Delivery("server.trackers.0", stuck, TrackedRun("f", "server", tmp_path, tmp_path))
    for round in range(9):
        made.put(lambda tracker, round=round: tracker.metrics(round, {}))
    stuck.released.set()
    made.end("completed")
    made.join(time.monotonic() + LONG)
    assert [round for round, _ in stuck.last.of("metrics")] == [0, 1, 2, 3, 4]
    ((said, _),) = made.warnings()
    assert said == "server.trackers.0 (recorder): 4 records were not delivered"


def test_a_failed_run_is_ended_as_failed(tmp_path: Path) -> None:
    config = RecorderConfig()

    def fail(_cohort: object) -> None:
        raise ValueError("canary")

    with pytest.raises(ValueError, match="canary"):
        run_tracked(with_trackers(SPLIT, config), tmp_path / "run", on_cohort=fail)
    assert not config.opened  # it had not begun

    class Later(RecorderConfig):
        """Breaks the run from a listener's side, after two rounds."""

    later, rounds = Later(), []

    def count(from_: str, _to: str, _item: object) -> float:
        rounds.append(from_)
        if len(rounds) > 40:
            raise RuntimeError("canary")
        return 0.0

    with pytest.raises(RuntimeError):
        run_tracked(with_trackers(SPLIT, later), tmp_path / "later", delay=count)
    assert later.last.of("end") == [("failed",)]
    assert "canary" not in repr(later.last.calls)
