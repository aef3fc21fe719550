"""MLflow, read back by its own client: a SQLite file, and servers that are away or slow."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from colonnade.common.parsing.file import parse
from colonnade.common.tracking.listener import Tracked, Tracking
from colonnade.common.tracking.mlflow_section import MlflowConfig
from colonnade.common.tracking.tracker import TrackedRun
from colonnade.server.member.tracking import server_model, server_tracking
from tests.support.federation import parameters, tree
from tests.support.tracking import CANARY, canary_tables, run_tracked, with_trackers

pytestmark = pytest.mark.slow

SPLIT = parse(tree({"name": "split", "embedding": 8}, epochs=1))
ROUNDS = 6
LONG = 60.0  # seconds that nothing here takes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for all tests: making one takes a second."""
    return tmp_path_factory.mktemp("mlflow") / "runs.db"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracking, "pauses", (0.01, 0.02))
    monkeypatch.setattr(Tracking, "patience", LONG)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def client(place: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{place}", registry_uri=f"sqlite:///{place}")


def the_run(place: Path, experiment: str) -> Any:
    found = client(place).get_experiment_by_name(experiment)
    (run,) = client(place).search_runs([found.experiment_id])
    return run


def state_of_generators() -> tuple[Any, ...]:
    numbers = np.random.get_state()[1].tobytes()
    return random.getstate(), numbers, torch.get_default_dtype(), torch.get_num_threads()


def test_a_run_over_canaries_and_its_bits(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run for three questions: what is there, that no canary is, and that results are those without a tracker."""
    dialled: list[Any] = []
    real = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, to: (dialled.append(to), real(self, to)))
    made = canary_tables(tmp_path, keys={"seeded": True})  # else the order of the rows is another one in every run
    made["server"] |= {"identity": f"/{CANARY}/keys"}
    config = parse(made)
    plain, _ = run_tracked(config, tmp_path / "plain", tmp_path)
    tracker = MlflowConfig(uri=str(place), experiment="first")
    tracker.prepare()
    before = state_of_generators()
    outcome, events = run_tracked(with_trackers(config, tracker), tmp_path / f"{CANARY}-run", tmp_path)
    assert state_of_generators() == before
    assert not [event for event in events if event["kind"] == "warning" and "tracker" in event["reason"]]
    assert outcome.server.metrics == plain.server.metrics
    assert parameters(outcome).keys() == parameters(plain).keys()
    assert all(torch.equal(value, parameters(plain)[name]) for name, value in parameters(outcome).items())

    run = the_run(place, "first")
    assert run.info.status == "FINISHED" and run.data.tags["colonnade.member"] == "server"
    assert run.data.params["protocol.name"] == "split" and run.data.params["server.optimiser.lr"] == "0.002"
    losses = client(place).get_metric_history(run.info.run_id, "train_loss")
    assert [(m.step, m.value) for m in losses] == [(e["round"], e["loss"]) for e in outcome.of_kind("round")]
    assert run.data.metrics["test_auc"] == pytest.approx(outcome.server.metrics["test_auc"])
    (artefact,) = client(place).list_artifacts(run.info.run_id)
    assert artefact.path == "summary.json"
    assert "mlflow.user" not in run.data.tags and "mlflow.source.name" not in run.data.tags
    for path in [place, *place.parent.rglob("*")]:
        assert path.is_dir() or CANARY.encode() not in path.read_bytes().lower(), path
        assert CANARY not in str(path.relative_to(place.parent))
    assert not [to for to in dialled if isinstance(to, tuple)], "it is to open no connection"


def listener(place: Path, folder: Path, **more: Any) -> Tracking:
    config = MlflowConfig(uri=str(place), **more)
    config.prepare()
    run = TrackedRun("credit", "server", folder, folder)
    return Tracking(
        (config,), Tracked("server.trackers", run, {"rounds": 4 if not more.get("model") else 9}, ("bank",))
    )


def round_event(number: int) -> dict[str, Any]:
    return {"kind": "round", "time": 1.0, "round": number, "loss": 1 / number}


def test_a_resumed_run_is_the_same_one_with_its_model(place: Path, tmp_path: Path) -> None:
    from safetensors.torch import load

    first = listener(place, tmp_path, experiment="second")
    for number in (1, 2):
        first(round_event(number))
    first.finish("interrupted", 2)
    run = the_run(place, "second")
    assert run.info.status == "KILLED" and run.data.params["rounds"] == "4"

    again = listener(place, tmp_path, experiment="second", model=True, register="credit-head")
    again({"kind": "begin", "time": 1.0, "round": 2})
    again(round_event(3))
    content = safetensors.torch.save({"head.weight": torch.ones(2, 3)})
    again.finish("completed", 3, model=lambda: content)
    resumed = the_run(place, "second")  # the only one
    assert resumed.info.run_id == run.info.run_id and resumed.info.status == "FINISHED"
    steps = [m.step for m in client(place).get_metric_history(run.info.run_id, "train_loss")]
    assert steps == [1, 2, 3]
    assert resumed.data.params["rounds"] == "4" and resumed.data.tags["resumed.rounds"] == "9"
    (version,) = client(place).search_model_versions("name = 'credit-head'")
    assert version.run_id == run.info.run_id
    stored = Path(client(place).download_artifacts(run.info.run_id, "model/model.safetensors", str(tmp_path)))
    assert torch.equal(load(stored.read_bytes())["head.weight"], torch.ones(2, 3))


def test_a_run_that_was_deleted_at_mlflow_begins_anew(place: Path, tmp_path: Path) -> None:
    (tmp_path / "trackers.json").write_text('{"x": 3}')
    first = listener(place, tmp_path, experiment="third")
    first(round_event(1))
    first.finish("completed", 1)
    kept = tmp_path / "trackers.json"
    run = the_run(place, "third").info.run_id
    assert run in kept.read_text()
    kept.write_text(kept.read_text().replace(run, "0" * 32))
    again = listener(place, tmp_path, experiment="third")
    again(round_event(2))
    again.finish("completed", 2)
    found = client(place).get_experiment_by_name("third")
    assert len(client(place).search_runs([found.experiment_id])) == 2


def test_only_models_are_in_the_model_of_the_server(tmp_path: Path) -> None:
    outcome, _ = run_tracked(SPLIT, tmp_path / "run")
    content = safetensors.torch.load(server_model(outcome.server.state) or b"")
    assert set(content) == {f"head.{name}" for name in outcome.server.state["head"].state_dict()}


class _Away(BaseHTTPRequestHandler):
    """Refuses, or keeps every caller waiting until the test lets go."""

    calls: list[str]
    hold: threading.Event | None = None

    def do_GET(self) -> None:
        self.calls.append(self.path)
        if self.hold is not None:
            self.hold.wait(LONG)
        self.send_error(503)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def away() -> Iterator[tuple[str, type[_Away]]]:
    class Handler(_Away):
        calls: list[str] = []  # noqa: RUF012  # one a test

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}", Handler
        if Handler.hold is not None:
            Handler.hold.set()
        served.shutdown()


@pytest.mark.parametrize("how", ["refuses", "slow", "nobody"])
def test_a_server_that_is_away(
    how: str, away: tuple[str, type[_Away]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tracking, "patience", 0.5)
    uri, handler = away
    if how == "slow":
        handler.hold = threading.Event()
    if how == "nobody":
        with socket.create_server(("127.0.0.1", 0)) as free:
            uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    outcome, events = run_tracked(with_trackers(SPLIT, MlflowConfig(uri=uri)), tmp_path / "run")
    assert outcome.server.round == ROUNDS
    said = [event["reason"] for event in events if event["kind"] == "warning"]
    assert said[-1].startswith("server.trackers.0 (mlflow): ") and said[-1].endswith("records were not delivered")
    assert len(said) == (1 if how == "slow" else 2)
    if how == "refuses":
        assert handler.calls and all(call.startswith("/api/2.0/mlflow/") for call in handler.calls)


class _Mlflow(BaseHTTPRequestHandler):
    """As much of MLflow's server as a run needs. It refuses the first calls, and remembers what the others send."""

    got: list[tuple[str, dict[str, Any]]]
    refusals: int
    folder: Path

    def do_POST(self) -> None:
        kind = type(self)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if kind.refusals:
            kind.refusals -= 1
            self.send_error(503)
            return
        call = self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
        kind.got.append((call, json.loads(body or b"{}")))
        info = {"run_id": "a" * 32, "status": "RUNNING", "artifact_uri": str(kind.folder), "experiment_id": "1"}
        answers = {
            "experiments/get-by-name": {"experiment": {"experiment_id": "1", "lifecycle_stage": "active"}},
            "runs/create": {"run": {"info": info, "data": {}}},
            "runs/get": {"run": {"info": info, "data": {}}},
            "runs/update": {"run_info": info},
        }
        content = json.dumps(answers.get(call, {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_comes_back_gets_every_round_and_no_canary(tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()

    class Handler(_Mlflow):
        got, refusals, folder = [], 3, tmp_path / "stored"  # one a test

    config = parse(canary_tables(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        tracker = MlflowConfig(uri=f"http://127.0.0.1:{served.server_port}", experiment="trial")
        outcome, events = run_tracked(with_trackers(config, tracker), tmp_path / "run", tmp_path)
        served.shutdown()
    said = [event["reason"] for event in events if event["kind"] == "warning" and "tracker" in event["reason"]]
    assert len(said) == 1 and "takes no records" in said[0] and Handler.refusals == 0
    batches = [body for call, body in Handler.got if call == "runs/log-batch"]
    steps = [one["step"] for body in batches for one in body.get("metrics", ()) if one["key"] == "train_loss"]
    assert steps == [event["round"] for event in outcome.of_kind("round")]
    assert Handler.got[-1][0] == "runs/update" and Handler.got[-1][1]["status"] == "FINISHED"
    assert CANARY not in repr(Handler.got).lower()
    (stored,) = (tmp_path / "stored").iterdir()
    assert stored.name == "summary.json" and CANARY not in stored.read_text().lower()


def test_members_that_begin_together_make_one_database(tmp_path: Path) -> None:
    """MLflow alone fails where two make the tables, and cannot go on with half of them."""
    from colonnade.common.tracking.mlflow_tracker import make_database

    file = tmp_path / "new" / "runs.db"
    file.parent.mkdir()
    (file.parent / "runs.db.partial").write_bytes(b"of a process that was killed")
    MlflowConfig(uri=str(file)).prepare()
    with ThreadPoolExecutor() as threads:
        for made in [threads.submit(make_database, file) for _ in range(3)]:
            made.result()
    assert client(file).create_experiment("one")
    assert not list(file.parent.glob("*.partial*"))


def test_the_folder_that_paths_are_relative_to(tmp_path: Path) -> None:
    config = with_trackers(SPLIT, MlflowConfig())
    made = server_tracking(config.federation, config.server, tmp_path, tmp_path, lambda: "")
    made.finish("failed", 0)  # never begun
    assert not list(tmp_path.iterdir())
