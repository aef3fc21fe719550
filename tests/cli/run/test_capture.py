"""Captures of real processes and of a simulation: the same messages, and everything in the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from colonnade.cli.main import app
from colonnade.client.transcript.capture import read_capture
from colonnade.common.messaging.message import tensors
from colonnade.common.parsing.file import load
from colonnade.common.run.json_text import read_lines
from tests.cli.run.test_up import events, finish, processes_of, start, wait_for_round
from tests.support.federation import tree
from tests.support.household import colonnade

TRAINING, EVALUATIONS = "capture.bin", "capture-evaluations.bin"

pytestmark = pytest.mark.processes


def write(folder: Path, **federation: Any) -> Path:
    made = tree({"name": "split", "embedding": 8}, **federation)
    made["every_party"]["capture"] = {"evaluations": "all"}
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


def crossed(folder: Path, party: str, file: str, way: str) -> list[tuple[str, int, torch.Tensor]]:
    """Kind, round and the one tensor of every message."""
    federation = load(folder / "config.yaml").federation
    found = [one for one in read_capture(folder / "parties" / party / file, federation) if one.way == way]
    return [(type(one.message).__name__, one.round, *tensors(one.message).values()) for one in found]


def test_members_over_grpc_and_a_simulation_capture_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, epochs=2, parties=2)
    code, output = colonnade("up", file, "--out", tmp_path / "up")
    assert code == 0, output
    simulated = CliRunner().invoke(app, ["simulate", str(file), "--out", str(tmp_path / "simulate")])
    assert simulated.exit_code == 0 and "captured" in simulated.output, simulated.output
    for party in ("party1", "party2"):
        left = list(read_lines(tmp_path / "up" / "parties" / party / "ledger.jsonl"))
        for name, way in ((TRAINING, "out"), (TRAINING, "in"), (EVALUATIONS, "out")):
            real, virtual = (crossed(tmp_path / command, party, name, way) for command in ("up", "simulate"))
            assert [entry[:2] for entry in real] == [entry[:2] for entry in virtual] and real
            assert all(torch.equal(a[2], b[2]) for a, b in zip(real, virtual, strict=True))
            if way == "out":
                kinds = {entry[0] for entry in real}
                assert [entry[:2] for entry in real] == [
                    (e["kind"], e["round"]) for e in left if e.get("kind") in kinds
                ]
        (event,) = events(tmp_path / "up" / "parties" / party, "capture")
        files = (tmp_path / "up" / "parties" / party / name for name in (TRAINING, EVALUATIONS))
        assert event["bytes"] == sum(path.stat().st_size for path in files)
    assert "kept in clear" in str(events(tmp_path / "up" / "parties" / "party1", "warning"))


def test_a_capture_survives_a_killed_party(tmp_path: Path) -> None:
    """Messages repeated since the last checkpoint are read once."""
    file, out = write(tmp_path, parties=2, epochs=30, checkpoint={"rounds": 5}), tmp_path / "run"
    process = start("up", file, "--out", out)
    wait_for_round(out, 2, process, "checkpoint")
    processes_of(process)["party2"].kill()
    output = finish(process)
    assert process.returncode == 0, output
    rounds = json.loads((out / "summary.json").read_text())["rounds"]
    assert [entry[1] for entry in crossed(out, "party2", TRAINING, "out")] == list(range(1, rounds + 1))
    repeated = [line["round"] for line in read_lines(out / "parties" / "party1" / "ledger.jsonl") if "repeat" in line]
    assert [entry[1] for entry in crossed(out, "party1", TRAINING, "out")].count(repeated[0] if repeated else 1) == 1
