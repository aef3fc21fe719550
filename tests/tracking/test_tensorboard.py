"""TensorBoard, read back by its own reader: at a server and at a party."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.parsing.file import parse
from colonnade.common.tracking.listener import Tracked, Tracking
from colonnade.common.tracking.sections import TensorBoardConfig
from colonnade.common.tracking.tracker import TrackedRun
from tests.support.federation import tree
from tests.support.household import colonnade
from tests.support.tracking import CANARY, canary_tables, run_tracked, with_trackers


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {name: [(one.step, one.value) for one in read.Scalars(name)] for name in read.Tags()["scalars"]}


def words(folder: Path) -> str:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return read.Tensors("parameters")[0].tensor_proto.string_val[0].decode()


def test_a_simulated_run(tmp_path: Path) -> None:
    config = parse(tree({"name": "split", "embedding": 8}, epochs=1))
    run = tmp_path / "run"
    outcome, _ = run_tracked(with_trackers(config, TensorBoardConfig()), run)
    found = curves(run / "tensorboard")
    losses = [(event["round"], pytest.approx(event["loss"])) for event in outcome.of_kind("round")]
    assert found["train_loss"] == losses and found["test_accuracy"]
    assert "| protocol.name | split |" in words(run / "tensorboard")


def test_parameters_are_text_in_its_table(tmp_path: Path) -> None:
    tracker = TensorBoardConfig().open(TrackedRun("credit", "server", tmp_path, tmp_path))
    tracker.begin({"id": "a | b\n| c ![x](http://x.org/y.png)", "<img src=x>": "[y](http://x)", "plain": 0.001})
    tracker.end("completed")
    table = words(tmp_path / "tensorboard")
    assert len(table.splitlines()) == 5 and "| plain | 0.001 |" in table
    assert "<img" not in table and "](http" not in table.replace("\\]", "")


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    config = parse(tree({"name": "split", "embedding": 8}, epochs=1))
    tracker = TensorBoardConfig(folder=Path("logs"))
    run_tracked(with_trackers(config, tracker), tmp_path / "run", tmp_path)
    (below,) = (tmp_path / "logs").iterdir()
    assert below.name.startswith("test-server-") and curves(below)["train_loss"]
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Rounds after the checkpoint that it goes on from were made twice: the later ones count."""

    def start(begin: int, rounds: range, loss: float) -> None:
        run = TrackedRun("credit", "server", tmp_path, tmp_path)
        listener = Tracking((TensorBoardConfig(),), Tracked("server.trackers", run, {}, ("bank",)))
        listener({"kind": "begin", "time": 1.0, "round": begin})
        for number in rounds:
            listener({"kind": "round", "time": 1.0, "round": number, "loss": loss})
        listener.finish("interrupted", rounds[-1])

    start(0, range(1, 6), 1.0)
    start(3, range(4, 8), 2.0)
    assert curves(tmp_path / "tensorboard")["train_loss"] == [
        *((n, 1.0) for n in (1, 2, 3)),
        *((n, 2.0) for n in range(4, 8)),
    ]


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracking, "patience", 0.3)
    (tmp_path / "tensorboard").write_text("in the way")
    said: list[dict[str, Any]] = []
    run = TrackedRun("credit", "server", tmp_path, tmp_path)
    listener = Tracking((TensorBoardConfig(),), Tracked("server.trackers", run, {}, ("bank",)))
    listener.report = said.append
    listener({"kind": "round", "time": 1.0, "round": 1, "loss": 2.0})
    listener.finish("completed", 1)
    assert [event["kind"] for event in said] == ["warning", "warning"]
    assert "takes no records" in said[0]["reason"] and said[1]["reason"].endswith("2 records were not delivered")


@pytest.mark.processes
def test_up_at_a_server_and_a_party(tmp_path: Path) -> None:
    made: dict[str, Any] = canary_tables(tmp_path)
    made["federation"] |= {"privacy": {"clip": 1, "noise_multiplier": 2.0}}
    made["server"]["trackers"] = ["tensorboard"]
    made["parties"]["party1"]["trackers"] = "tensorboard"
    file, run = tmp_path / "federation.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(made))
    code, said = colonnade("up", file, "--out", run)
    assert code == 0, said
    server, party = run / "tensorboard", run / "parties" / "party1" / "tensorboard"
    assert not (run / "parties" / "party2" / "tensorboard").exists()
    summary = json.loads((run / "summary.json").read_text())
    theirs, own = curves(server), curves(party)
    assert [step for step, _ in theirs["train_loss"]] == list(range(1, summary["rounds"] + 1))
    epsilon = pytest.approx(summary["epsilon"]["party1"], rel=1e-4)
    assert theirs["epsilon/party1"] == [(summary["rounds"], epsilon)]
    # A party's record is of itself alone: no loss, no evaluation, no other party.
    assert set(own) == {
        "bytes_sent", "bytes_received", "releases", "epsilon",
        "seconds_computing", "seconds_waiting", "seconds_checkpoint",
    }  # fmt: skip
    assert own["epsilon"] == [(summary["rounds"], epsilon)]
    assert [step for step, _ in own["bytes_sent"]][: summary["rounds"]] == list(range(1, summary["rounds"] + 1))
    assert "loss" not in words(party) and "party2" not in words(party) and "| member | party1 |" in words(party)

    code, said = colonnade("up", "--resume", run, "--set", "federation.epochs=3")
    assert code == 0, said
    rounds = json.loads((run / "summary.json").read_text())["rounds"]
    assert rounds > summary["rounds"]
    assert [step for step, _ in curves(server)["train_loss"]] == list(range(1, rounds + 1))
    files = [path for folder in (server, party) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert not [path for path in files if CANARY.encode() in path.read_bytes().lower()]
