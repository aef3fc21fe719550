"""A party of two processes under `up`: the run of one, also if its worker is killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from colonnade.common.parsing.file import load
from tests.cli.run.test_up import UNHURRIED, events, finish, start, wait_for_round, write
from tests.support.federation import federate
from tests.support.household import colonnade

pytestmark = pytest.mark.processes


def worker_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Rank 1 of the party that has ranks."""
    (found,) = (
        child for child in psutil.Process(process.pid).children(recursive=True) if child.environ().get("RANK") == "1"
    )
    return found


def test_a_party_whose_worker_is_killed_comes_back_and_learns_what_one_process_does(tmp_path: Path) -> None:
    more = {"public_start": True, "checkpoint": {"rounds": 2}, "evaluate": {"every": 8}, "batch": 300}
    file = write(tmp_path, {"name": "split", "embedding": 8}, parties=2, rounds=8, epochs=0, **more)
    out, alone = tmp_path / "run", federate(load(file))
    process = start("up", file, "--out", out, "--set", "parties.party2.workers=2", *UNHURRIED)
    wait_for_round(out, 3, process)
    worker_of(process).kill()
    output = finish(process)
    assert process.returncode == 0, output
    assert "party2 was killed by SIGKILL, it is started again" in output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party2"
    found = {event["round"]: event["loss"] for event in events(out, "round")}
    expected = {event["round"]: event["loss"] for event in alone.of_kind("round")}
    assert found == pytest.approx(expected, rel=0, abs=1e-5) and len(found) == 8
    assert json.loads((out / "summary.json").read_text())["status"] == "completed"
    sets = ("--set", "federation.rounds=10", "--set", "parties.party2.workers=1")  # whose workers held nothing
    code, output = colonnade("up", "--resume", out, *sets)
    assert code == 0, output


def test_a_model_that_ranks_cannot_share_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    file = write(tmp_path, {"name": "split", "embedding": 8}, parties=2, rounds=2, epochs=0)
    (tmp_path / "tower.py").write_text(
        "from torch import nn\n\ndef tower(shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), "
        "nn.Dropout())\n"
    )
    sets = ("--set", "parties.party2.model=./tower.py:tower", "--set", "parties.party2.workers=2")
    process = start("up", file, "--out", tmp_path / "run", *sets)
    said = " ".join(finish(process).split())
    assert process.returncode == 2 and "party2: parties.party2.model, with several ranks: has dropout" in said
