"""`colonnade predict`: from a run's folder and a file of ids to a file of classes; noise is paid for over restarts."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import ColonnadeError
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.launcher.prediction_files import PredictionIds, Predictions
from colonnade.reports.console.screen import INTERRUPTED
from tests.cli.data.test_wrong_input import run
from tests.cli.run.test_resume import resume
from tests.cli.run.test_up import events, finish, start, summary_of, write
from tests.support.federation import config
from tests.support.household import colonnade, household
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.slow

VIMADMM = {"name": "vimadmm", "missing": "last"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that `up` has ended."""
    folder = tmp_path_factory.mktemp("trained")
    code, output = colonnade("up", write(folder, VIMADMM, parties=2, epochs=3), "--out", folder / "run")
    assert code == 0, output
    yield folder / "run"


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A copy, for tests that change it."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rows_of(part: str) -> list[int]:
    cfg = config(VIMADMM)
    assert cfg.server is not None
    schedule = Schedule(cfg.federation, len(load_labels(cfg.server.labels, Path()).values), 0)
    found: list[int] = getattr(schedule.partition, part).tolist()
    return found


def accuracy(file: Path) -> float:
    cfg = config(VIMADMM)
    assert cfg.server is not None
    values = load_labels(cfg.server.labels, Path()).values
    with file.open(newline="") as lines:
        hits = [row["class"] == str(int(values[int(row["id"])])) for row in csv.DictReader(lines)]
    return sum(hits) / len(hits)


def write_ids(path: Path, ids: list[object]) -> Path:
    path.write_text("\n".join(["id", *map(str, ids)]) + "\n")
    return path


@pytest.mark.processes
def test_predictions_for_the_test_rows_are_as_good_as_the_run_said_and_are_in_every_ledger(
    trained: Path, tmp_path: Path
) -> None:
    rows = rows_of("test")
    ids = write_ids(tmp_path / "ids.csv", [*rows, "nobody"])
    process = start("predict", trained, "--ids", ids, "--out", tmp_path / "out.csv")
    output = finish(process)
    assert process.returncode == 0, output
    assert "1 id not known to every member" in output
    with (tmp_path / "out.csv").open(newline="") as lines:
        said = list(csv.DictReader(lines))
    assert [row["id"] for row in said] == [*map(str, rows), "nobody"]
    assert set(said[-1].values()) == {"nobody", ""}
    probabilities = [float(said[0][f"p_{label}"]) for label in range(10)]
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    assert said[0]["class"] == str(probabilities.index(max(probabilities)))
    known = tmp_path / "known.csv"
    known.write_text("".join((tmp_path / "out.csv").read_text().splitlines(keepends=True)[:-1]))
    summary = json.loads((trained / "summary.json").read_text())
    assert accuracy(known) == pytest.approx(summary["metrics"]["test_accuracy"])
    for party in summary["parties"]:
        ledger = map(json.loads, (trained / "parties" / party / "ledger.jsonl").read_text().splitlines())
        *_, last = (line for line in ledger if "kind" in line)
        assert (last["kind"], last["rows"]) == ("Output", len(rows))


def test_without_a_party_its_mean_stands_in_as_the_summary_says(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "parties" / "party2")
    ids = write_ids(tmp_path / "ids.csv", [*rows_of("validation")])
    words = ("--ids", ids, "--out", tmp_path / "out.csv", "--absent", "mean", "--wait", 60)
    code, output = colonnade("predict", copy, *words)
    assert code == 0, output
    expected = json.loads((copy / "summary.json").read_text())["absent"]["party2"]
    assert accuracy(tmp_path / "out.csv") == pytest.approx(expected)
    assert "party2 is absent" in output and f"{expected:.2%} right" in " ".join(output.split())


def test_members_on_their_own_meet_and_one_that_trains_is_turned_away(copy: Path, tmp_path: Path) -> None:
    ids, tree = write_ids(tmp_path / "ids.csv", [0, 1]), yaml.safe_load((copy / "config.yaml").read_text())
    port = _free_port()
    server = {"federation": tree["federation"], "server": {**tree["server"], "listen": f"127.0.0.1:{port}"}}
    (tmp_path / "server.yaml").write_text(yaml.safe_dump(server))
    words = ["predict", copy, "--file", tmp_path / "server.yaml", "--ids", ids, "--out", tmp_path / "out.csv"]
    names = list(tree["parties"])
    files = {name: tmp_path / f"{name}.yaml" for name in names}
    for name, file in files.items():
        own = {name: {**tree["parties"][name], "connect": f"127.0.0.1:{port}"}}
        file.write_text(yaml.safe_dump({"federation": tree["federation"], "parties": own}))
    with household(tmp_path) as members:
        members.begin("asking", *words, "--insecure")
        members.begin("stray", "client", files[names[0]], "--out", tmp_path / "stray", "--insecure")
        code, refused = members.finish("stray")
        assert code != 0 and "has come to train" in refused
        for name in names:
            members.begin(name, "answer", files[name], "--in", copy / "parties" / name, "--insecure")
        for name in ("asking", *names):
            code, output = members.finish(name)
            assert code == 0, output
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_the_server_waits_for_its_parties_for_the_given_time(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids, file = write_ids(tmp_path / "ids.csv", [0]), tmp_path / "server.yaml"
    tree = yaml.safe_load((copy / "config.yaml").read_text())
    server = {**tree["server"], "listen": "127.0.0.1:0"}
    file.write_text(yaml.safe_dump({"federation": tree["federation"], "server": server}))
    words = ["predict", copy, "--file", file, "--ids", ids, "--out", tmp_path / "out.csv", "--insecure"]
    for absent in ("refuse", "mean"):
        code, output = run(monkeypatch, capfd, *words, "--absent", absent, "--wait", 0.4)
        assert code == 3 and "party1, party2 was lost: did not join within 0.4 s" in output


def test_a_budget_that_is_spent_pays_for_no_prediction(tmp_path: Path) -> None:
    private = {"epsilon": 8, "delta": 1e-5, "noise_multiplier": 3, "clip": 1}
    file = write(tmp_path, {"name": "vimadmm"}, epochs=0, rounds=2000, privacy=private)
    code, output = colonnade("up", file, "--out", tmp_path / "run")
    assert code == 0, output
    paid = json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]["releases"]["party1"]
    ids = write_ids(tmp_path / "ids.csv", [1])
    code, output = colonnade("predict", tmp_path / "run", "--ids", ids, "--out", tmp_path / "o")
    assert code != 0
    assert "the privacy budget is spent" in output and f"{paid:g} releases" in output


CASES = {
    "two columns": ("id,name\n1,x\n", [], "has the columns id, name"),
    "a wrong key": ("id,name\n1,x\n", ["--key", "nam"], "did you mean 'name'"),
    "a broken line": ("id\n1\n2,3\n", [], "line 3: 2 values for the 1 columns"),
    "a missing id": ("id,x\n1,a\n ,b\n", ["--key", "id"], "line 3: the id is missing"),
    "no ids": ("id\n", [], "has a header but no ids"),
    "an empty file": ("", [], "is empty"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_files_of_ids_are_refused_before_anybody_is_asked(case: str, trained: Path, tmp_path: Path) -> None:
    text, more, said = CASES[case]
    (tmp_path / "ids.csv").write_text(text)
    code, output = colonnade("predict", trained, "--ids", tmp_path / "ids.csv", "--out", tmp_path / "out.csv", *more)
    assert code != 0 and said in " ".join(output.split())
    assert not (tmp_path / "out.csv").exists()


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = write_ids(tmp_path / "ids.csv", [1])
    code, output = run(monkeypatch, capfd, "predict", tmp_path, "--ids", ids, "--out", tmp_path / "out.csv")
    assert code != 0 and "holds no run" in output


def test_predictions_of_an_earlier_start_are_not_requested_again(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    first = Predictions(file, ("id", "class"), "token")
    with first.open() as there:
        assert there == 0
        first.add('1,a\r\n"2,\n",\r\n', 1)
    with (tmp_path / "out.csv.partial").open("a") as torn:
        torn.write("3,")
    again = Predictions(file, ("id", "class"), "token")
    with again.open() as there:
        assert there == 2
        again.add("3,c\r\n4,\r\n", 1)
        again.finish()
    assert again.unknown == 2  # of the whole file
    with file.open(newline="") as lines:
        assert list(csv.reader(lines)) == [["id", "class"], ["1", "a"], ["2,\n", ""], ["3", "c"], ["4", ""]]
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_predictions_begun_for_other_ids_begin_anew(tmp_path: Path) -> None:
    before = Predictions(tmp_path / "out.csv", ("id",), "before")
    with before.open():
        before.add("1\r\n")
    with Predictions(tmp_path / "out.csv", ("id",), "now").open() as there:
        assert there == 0


def test_ids_come_with_the_column_that_the_server_calls_its_own(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("﻿name,client\nx, 7 \n")
    assert list(PredictionIds(tmp_path / "ids.csv", like="client").ids()) == [" 7 "]
    with pytest.raises(ColonnadeError):
        list(PredictionIds(tmp_path / "none.csv").ids())


def _free_port() -> int:

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.processes
def test_a_service_answers_callers_with_a_token_until_it_is_stopped(trained: Path) -> None:
    http = f"127.0.0.1:{_free_port()}"
    process = start("serve", trained, "--http", http, "--grpc", "")
    try:
        _wait_until_healthy(http, process)
        token = (trained / "serve.tokens").read_text().split()[1]
        body = json.dumps({"ids": ["0", "nobody"]}).encode()
        request = urllib.request.Request(f"http://{http}/v1/predict", body, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            said = json.load(reply)["predictions"]
        assert said[0]["known"] and said[0]["class"] in map(str, range(10)) and not said[1]["known"]
    finally:
        process.send_signal(signal.SIGTERM)
        output = finish(process)
    assert process.returncode == INTERRUPTED, output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--http", "0.0.0.0:8000"], "tokens in the clear"),
        (["--http", "", "--grpc", ""], "both disabled"),
        (["--key", "key.pem"], "give both"),
    ],
)
def test_invalid_listening_addresses_are_refused(
    more: list[str], said: str, trained: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, output = run(monkeypatch, capfd, "serve", trained, *more)
    assert code != 0 and said in " ".join(output.split())


def _wait_until_healthy(http: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        try:
            with urllib.request.urlopen(f"http://{http}/healthz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("it never became healthy")


def test_up_goes_on_to_predictions(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.csv", [3, 1, 2])
    file = write(tmp_path, VIMADMM, epochs=1)
    code, output = colonnade("up", file, "--out", tmp_path / "run", "--predict", ids)
    assert code == 0, output
    with (tmp_path / "run" / "predictions.csv").open(newline="") as lines:
        assert [row["id"] for row in csv.DictReader(lines)] == ["3", "1", "2"]


def test_up_looks_through_the_ids_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("id\n1,2\n")
    file = write(tmp_path, VIMADMM)
    code, output = colonnade("up", file, "--out", tmp_path / "run", "--predict", tmp_path / "ids.csv")
    assert code == 2
    assert "line 2" in output
    assert not (tmp_path / "run").exists()


VAFL = {"name": "vafl", "embedding": 8}
PRIVATE = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 20}"


def paid(run: Path) -> dict[str, Any]:
    return dict(summary_of(run)["answer_privacy"])


def test_a_run_that_goes_on_pays_on_and_keeps_its_noise(tmp_path: Path) -> None:
    file, run = write(tmp_path, VAFL, epochs=2, checkpoint={"rounds": 4}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", PRIVATE)
    assert code == 0, output
    assert "answers noised, epsilon" in output
    assert paid(run)["epsilon"] == pytest.approx(epsilon(2 * (4 + 1), 20, 1e-6, "replace"), rel=1e-5)
    code, output = resume(run, "--set", "federation.epochs=3")
    assert code == 0, output
    assert paid(run)["releases"] == 15
    code, output = resume(run, "--set", "server.privacy.answers.noise_multiplier=30")
    assert code == 2 and "counts releases with noise_multiplier = 20" in output
    code, output = resume(run, "--set", "server.privacy.answers=null")
    assert code == 2 and "cannot go on without them" in output and "Traceback" not in output


def test_rounds_that_are_done_again_are_paid_again(tmp_path: Path) -> None:
    """The rows of round 7 are those of round 1; rounds 6 to 8 come twice, or all if nothing was saved."""
    file, run = write(tmp_path, VAFL, epochs=2, checkpoint={"rounds": 5}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", PRIVATE, "--chaos", "party3: crash=9")
    assert code == 0, output
    assert events(run, "rollback")
    assert paid(run)["releases"] in (15, 20)
