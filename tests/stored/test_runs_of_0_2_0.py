"""Runs that version 0.2.0 made: they verify, predict, resume, and are served, as that version itself did it.

Each archive beside this file is a folder of three tables and a finished run of four rounds (`run/`), made by `colonnade
up federation.yaml --out run`; `predictions.csv` and `expected.json` are what that version then predicted and how it
went on for two more rounds. Draws of noise are no part of a run, so that noisy runs are compared by their budgets.
"""

from __future__ import annotations

import csv
import json
import socket
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from colonnade.common.runtime.json_lines import read_lines
from tests.support.household import colonnade, household
from tests.support.patience import PATIENCE

STORED = Path(__file__).parent
NOISY = ("codes", "vfl_afe", "vimadmm")
RELEASED = ("vfl_afe", "vimadmm")  # their predictions are releases too
CLOSE = {"czofo": 0.01}  # relative, of losses: it steps with whatever has arrived
KINDS = ("codes", "czofo", "fedvs", "split", "split_avg", "vfedmh", "vfl_afe", "vimadmm")


@pytest.fixture
def unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unpacked(kind: str) -> Path:
        with tarfile.open(STORED / f"{kind}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        (tmp_path / "run" / "launch.json").write_text(json.dumps({"base": str(tmp_path)}))  # where its tables now are
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return unpacked


def test_every_archive_is_tried() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in STORED.glob("*.tar.xz")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_it_verifies_predicts_and_goes_on(kind: str, unpack) -> None:
    home = unpack(kind)
    expected = json.loads((home / "expected.json").read_text())
    for party in ("bank", "clinic", "shop"):
        code, said = colonnade("ledger", f"run/parties/{party}", "--verify")
        assert code == 0, said
    code, said = colonnade("predict", "run", "--ids", "ids.csv", "--out", "again.csv")
    assert code == 0, said
    before, now = _rows(home / "predictions.csv"), _rows(home / "again.csv")
    assert [row["id"] for row in now] == [row["id"] for row in before]
    if kind not in RELEASED:
        assert [row["class"] for row in now] == [row["class"] for row in before]
        for name in ("p_bad", "p_good"):
            assert [float(row[name]) for row in now] == pytest.approx([float(row[name]) for row in before], abs=2e-4)
    code, said = colonnade("up", "--resume", "run", "--set", "federation.rounds=6")
    assert code == 0, said
    summary = json.loads((home / "run" / "summary.json").read_text())
    assert summary["status"] == expected["status"] == "completed" and summary["epsilon"] == expected["epsilon"]
    losses = [event["loss"] for event in read_lines(home / "run" / "events.jsonl") if event["kind"] == "round"]
    assert len(losses) == 6
    if kind not in NOISY:
        assert losses == pytest.approx(expected["losses"], rel=CLOSE.get(kind, 1e-4))
    for party in ("bank", "clinic", "shop"):
        code, said = colonnade("ledger", f"run/parties/{party}", "--verify")
        assert code == 0, said


@pytest.mark.parametrize("command", ["report", "card", "ledger"])
def test_it_is_read(command: str, unpack) -> None:
    unpack("split")
    code, said = colonnade(command, "run/parties/bank" if command == "ledger" else "run")
    assert code == 0, said


def test_it_is_served(unpack) -> None:
    home = unpack("split")
    (before,) = (row for row in _rows(home / "predictions.csv")[:1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        http = f"127.0.0.1:{probe.getsockname()[1]}"
    with household(home) as members:
        members.begin("service", "serve", "run", "--http", http, "--grpc", "")
        deadline = time.monotonic() + PATIENCE
        while not (home / "run" / "serve.tokens").exists() or not _healthy(http):
            assert "service" in members.running() and time.monotonic() < deadline
            members.wait(1.0)
        token = (home / "run" / "serve.tokens").read_text().split()[1]
        body = json.dumps({"ids": [before["id"]]}).encode()
        request = urllib.request.Request(f"http://{http}/v1/predict", body, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            (said,) = json.load(reply)["predictions"]
        assert said["known"] and said["class"] == before["class"]


def _healthy(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/healthz", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))
