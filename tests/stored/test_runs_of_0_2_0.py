"""Runs that version 0.2.0 made: they verify, predict, resume, and are served, as that version itself did it.

Each archive beside this file is a folder of three tables and a finished run of four rounds (`run/`), one of every
protocol; between them they have Gaussian, adaptive and discrete noise, noisy labels and responses, a regression, and
rows in the order of sorted keys. They were made by `colonnade up federation.yaml --out run`; `predictions.csv` and
`expected.json` are what that version then predicted and how it went on for two more rounds. Draws of noise are no part
of a run, so that noisy runs are compared by their budgets.
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
import yaml

from colonnade.common.contracts.registry import NAMES
from colonnade.common.run.json_text import read_lines, sealed
from tests.support.household import colonnade, household
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.slow

STORED = Path(__file__).parent
PARTIES = ("bank", "clinic", "shop")
FREE = ("codes", "vafl", "vfl_afe", "vimadmm", "zoo_vfl")  # losses after a resume: noise, or who comes first, decides
OF_0_2_0 = tuple(name for name in NAMES if name not in ("secureboost", "additive", "hetero_lr", "scorecard"))
RELEASED = ("vfl_afe", "vimadmm")  # their predictions are releases too
CLOSE = {"czofo": 0.01}  # relative, of losses: it steps with whatever has arrived
UNASKED = ("centralized", "local")  # there are no predictions


@pytest.fixture
def unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unpacked(kind: str) -> Path:
        with tarfile.open(STORED / f"{kind}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        (tmp_path / "run" / "launch.json").write_text(json.dumps({"base": str(tmp_path)}))  # where its tables now are
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return unpacked


def test_there_is_one_of_every_protocol() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in STORED.glob("*.tar.xz")} == set(OF_0_2_0)


@pytest.mark.parametrize("kind", OF_0_2_0)
def test_it_verifies_predicts_and_goes_on(kind: str, unpack) -> None:
    home = unpack(kind)
    expected = json.loads((home / "expected.json").read_text())
    for party in PARTIES:
        code, said = colonnade("ledger", f"run/parties/{party}", "--verify")
        assert code == 0, said
    if kind not in UNASKED:
        code, said = colonnade("predict", "run", "--ids", "ids.csv", "--out", "again.csv")
        assert code == 0, said
        _assert_alike(kind, _rows(home / "again.csv"), _rows(home / "predictions.csv"))
    code, said = colonnade("up", "--resume", "run", "--set", "federation.rounds=6")
    assert code == 0, said
    summary = json.loads((home / "run" / "summary.json").read_text())
    assert summary["status"] == expected["status"] == "completed" and summary["epsilon"] == expected["epsilon"]
    losses = [event["loss"] for event in read_lines(home / "run" / "events.jsonl") if event["kind"] == "round"]
    assert len(losses) == 6
    if kind not in FREE:
        assert losses == pytest.approx(expected["losses"], rel=CLOSE.get(kind, 1e-4))
    for party in PARTIES:
        code, said = colonnade("ledger", f"run/parties/{party}", "--verify")
        assert code == 0, said


@pytest.mark.parametrize("command", ["report", "card", "ledger"])
def test_it_is_read(command: str, unpack) -> None:
    unpack("split")
    code, said = colonnade(command, "run/parties/bank" if command == "ledger" else "run")
    assert code == 0, said


@pytest.mark.parametrize("kind", sorted(set(OF_0_2_0) - set(UNASKED)))
def test_it_is_served(kind: str, unpack) -> None:
    home = unpack(kind)
    before = _rows(home / "predictions.csv")[0]
    http = _free_address()
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
        assert said["known"]
        numbers = said.get("probabilities") or said["values"]
        columns = [said["id"], *([said["class"]] if "class" in said else []), *map(str, numbers)]
        _assert_alike(kind, [dict(zip(before, columns, strict=True))], [before])


@pytest.mark.parametrize("start", ["", "public"], ids=["0.2.0", "0.3"])
def test_members_on_their_own_go_on_and_predict_with_their_files_of_before(start: str, unpack) -> None:
    """Which say nothing of a stop. A build of 0.3 without the early stop by default wrote `start`, and no `stops`."""
    home = unpack("split")
    run = home / "run"
    if start:
        for record in (run / "run.json", *(run / "parties" / party / "pinned.json" for party in PARTIES)):
            record.write_bytes(sealed({**json.loads(record.read_text()), "start": start}))
    _files_of_their_own(home)
    with household(home) as members:
        for party in PARTIES:
            members.begin(party, "client", f"{party}.yaml", "--insecure", "--resume", f"run/parties/{party}")
        members.begin("server", "server", "server.yaml", "--insecure", "--resume", "run")
        for name in ("server", *PARTIES):
            code, said = members.finish(name)
            assert code == 0, said
        for party in PARTIES:
            members.begin(party, "answer", f"{party}.yaml", "--insecure", "--in", f"run/parties/{party}")
        code, said = colonnade(
            "predict", "run", "--file", "server.yaml", "--insecure", "--ids", "ids.csv", "--out", "again.csv"
        )
        assert code == 0, said
        for party in PARTIES:
            code, said = members.finish(party)
            assert code == 0, said
    losses = [event["loss"] for event in read_lines(run / "events.jsonl") if event["kind"] == "round"]
    assert losses == pytest.approx(json.loads((home / "expected.json").read_text())["losses"], rel=1e-4)
    assert len(_rows(home / "again.csv")) == len(_rows(home / "predictions.csv"))


def _files_of_their_own(home: Path) -> None:
    """A file of each member, of the one that `up` had; two more rounds."""
    together = yaml.safe_load((home / "federation.yaml").read_text())
    federation, every, port = {**together["federation"], "rounds": 6}, together["every_party"], _free_address()
    made = {"server": {"server": {**together["server"], "listen": port}}}
    for party, own in together["parties"].items():
        data = {**every["data"], **own["data"]}
        made[party] = {"parties": {party: {**every, **own, "data": data, "connect": port}}}
    for name, sections in made.items():
        (home / f"{name}.yaml").write_text(yaml.safe_dump({"federation": federation, **sections}))


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _healthy(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/healthz", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _assert_alike(kind: str, now: list[dict[str, str]], before: list[dict[str, str]]) -> None:
    """Predictions, but for noise in them."""
    assert [row["id"] for row in now] == [row["id"] for row in before]
    if kind in RELEASED:
        return
    for column in before[0]:
        if column in ("id", "class"):
            assert [row[column] for row in now] == [row[column] for row in before]
        else:
            ours, theirs = ([float(row[column]) for row in rows] for rows in (now, before))
            assert ours == pytest.approx(theirs, abs=2e-4)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))
