"""A protocol of each kind as `up` runs it, over real gRPC and mutual TLS, in one event loop.

That messages of all protocols survive the wire to the bit: tests/protocols/test_conformance.py. Embeddings and coded
sums over gRPC: tests/golden. VIMADMM runs as processes: tests/cli/run/test_up.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.common.parsing.file import load
from colonnade.common.run.json_text import read_lines
from tests.cli.run.test_up import assert_as_simulated, events, summary_of, write
from tests.support.federation import federate
from tests.support.household import colonnade

pytestmark = pytest.mark.slow

PROTOCOLS = [
    {"name": "czofo", "embedding": 16, "arrivals": False},
    {"name": "codes", "steps": 20},
    {"name": "vfedmh", "embedding": 16},
    {"name": "secureboost", "gradients": "clear", "depth": 2},
    {"name": "additive", "bins": 8},
    {"name": "hetero_lr"},
]
NOISE_ONCE = {"clip": 1.0, "noise_multiplier": 0.1, "seeded": True, "once": {"colluders": 1}}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p["name"])
def test_on_the_wire_a_protocol_learns_the_same_as_without(tmp_path: Path, protocol: dict) -> None:
    file, out = write(tmp_path, protocol, epochs=1), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    assert_as_simulated(file, out, output)


def test_with_noise_once_on_a_sum_it_learns_the_same_too(tmp_path: Path) -> None:
    blinded = {"name": "vimadmm_j", "update": "signal", "embedding": 16, "aggregate": "blinded"}
    file, out = write(tmp_path, blinded, epochs=1, benchmark=True, privacy=NOISE_ONCE), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    assert_as_simulated(file, out, output)
    ledger = read_lines(out / "parties" / "party1" / "ledger.jsonl")
    masked = [line["mechanism"] for line in ledger if line.get("kind") == "Masked"]
    assert masked and all("seeded once, 4 present, 1 colluding, blinded, a sum of 4" in each for each in masked)


def test_a_server_that_learns_alone_is_sent_nothing(tmp_path: Path) -> None:
    """No party is waited for, and yet all join, save the last round and part."""
    file, out = write(tmp_path, {"name": "local", "embedding": 16}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    together = federate(load(file))
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = summary_of(out)
    assert summary["status"] == "completed" and summary["metrics"] == together.server.metrics
    assert summary["bytes"]["up"]["payload"] == summary["bytes"]["down"]["payload"] == 0
    assert not [line for path in out.rglob("ledger.jsonl") for line in read_lines(path) if "kind" in line]
    assert len(list((out / "parties").rglob("*.safetensors"))) == 4


def test_asynchronous_pairs_are_answered_with_one_number_each(tmp_path: Path) -> None:
    """Asynchronous ZOO-VFL."""
    protocol = {"name": "zoo_vfl", "embedding": 8}
    file, out = write(tmp_path, protocol, epochs=8, evaluate={"every": 48}), tmp_path / "run"
    rates = ("every_party.optimiser={name: sgd, lr: 0.03, momentum: 0}", "server.optimiser={name: sgd, lr: 0.03}")
    sets = [
        word for value in ("every_party.model={name: linear, activation: none}", *rates) for word in ("--set", value)
    ]
    code, output = colonnade("up", file, "--out", out, *sets)
    assert code == 0, output
    summary = summary_of(out)
    assert summary["metrics"]["test_accuracy"] > 0.4  # one in ten is right by chance
    assert summary["bytes"]["down"]["payload"] == 48 * 4 * 4


def test_parties_that_come_when_they_like_survive_a_crash(tmp_path: Path) -> None:
    """Asynchronous VAFL: the order is real, checkpoints are consistent, all members resume from one."""
    protocol = {"name": "vafl", "embedding": 16, "arrivals": True}
    file = write(tmp_path, protocol, epochs=10, checkpoint={"rounds": 10}, evaluate={"every": 30})
    out = tmp_path / "run"
    code, output = colonnade("up", file, "--out", out, "--chaos", "party2: crash=25")
    assert code == 0, output
    (resume,) = events(out, "resume")
    assert resume["round"] in (0, 10, 20)  # the newest that all had written by then
    assert [event["round"] for event in events(out, "round")][-1] == 60
    assert summary_of(out)["metrics"]["test_accuracy"] > 0.5


def test_codes_over_processes_are_kept_at_the_party_and_paid_for_once_over_training_and_predictions(
    tmp_path: Path,
) -> None:
    private = {"mechanism": "discrete", "epsilon": 8, "delta": 1e-4}
    file = write(tmp_path, {"name": "codes", "steps": 20, "drawn": 300, "lr": 30}, epochs=1, privacy=private)
    out = tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    summary = summary_of(out)
    assert all(7.9 < epsilon <= 8 for epsilon in summary["epsilon"].values()) and summary["delta"] == 1e-4
    assert 31 < summary["person"]["epsilon"] <= 32 and summary["privacy"]["void"] is None
    assert summary["metrics"]["test_accuracy"] > 0.7
    folder = out / "parties" / "party1"
    kept = {path.name: path.read_bytes() for path in (folder / "codes").iterdir()}
    assert kept.keys() == {"encoder.safetensors", "training.safetensors", "held-out.safetensors"}
    (tmp_path / "ids.csv").write_text("id\n0\n1\n2\n3\n")
    code, output = colonnade("predict", out, "--ids", tmp_path / "ids.csv", "--out", tmp_path / "said.csv")
    assert code == 0, output
    assert {path.name: path.read_bytes() for path in (folder / "codes").iterdir()} == kept  # all rows had their sets
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert sum(line.get("reserved", 0) for line in lines) == 1
    left = [line for line in lines if line.get("kind") in ("Codes", "Evaluation", "Output")]
    assert {line["mechanism"] for line in left} == {"subset 1 of 20, once a row"}
    assert {line["epsilon"] for line in left} == {left[0]["epsilon"]}
