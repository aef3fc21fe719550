"""`colonnade attack` as a user sees it: a table, a file, pictures, and error messages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.privacy.accounting.accountant import gaussian_epsilon
from colonnade_lab.attacks import completion
from tests.cli.data.test_wrong_input import run
from tests.support.federation import tree

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captured run of `simulate`, by its command; party4 keeps nothing."""
    folder = tmp_path_factory.mktemp("simulated")
    made = tree({"name": "split", "embedding": 10}, epochs=4, batch=125)
    made["federation"]["rows"] = {"train": 500, "validation": 0, "test": 100}
    made["parties"] = {f"party{index}": {"capture": {}} for index in (1, 2, 3)}
    (folder / "federation.yaml").write_text(yaml.safe_dump(made))
    with pytest.MonkeyPatch.context() as patch:
        from colonnade.cli.run.simulate import simulate

        patch.chdir(folder)
        simulate(folder / "federation.yaml", (), folder / "run")
    return folder / "run"


def private(folder: Path) -> Path:
    """A run with noise on embeddings and on labels, of which nothing was captured."""
    made = tree(
        {"name": "split", "embedding": 6},
        epochs=1,
        privacy={"mechanism": "adaptive", "clip": 1, "noise_multiplier": 2, "delta": 1.0e-5},
    )
    made["federation"] |= {"rows": {"train": 200, "validation": 0, "test": 50}, "batch": 100}
    made["server"]["privacy"] = {"labels": {"epsilon": 2}}
    (folder / "federation.yaml").write_text(yaml.safe_dump(made))
    return folder / "federation.yaml"


@pytest.fixture(scope="module")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    with pytest.MonkeyPatch.context() as patch:
        from colonnade.cli.run.simulate import simulate

        patch.chdir(folder)
        simulate(private(folder), (), folder / "run")
    return folder / "run"


def attack(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    return run(monkeypatch, capfd, "attack", *argv)


def found(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def test_labels(simulated: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert attack(monkeypatch, capfd, simulated, "--kind", "labels")[0] == 0
    said = found(simulated / "attacks" / "labels.json")
    assert set(said["parties"]) == {"party1", "party2", "party3"} and said["protocol"] == "split"
    best = said["parties"]["party1"]["best"]
    assert best["accuracy"] - best["chance"] == max(
        g["accuracy"] - g["chance"] for g in said["parties"]["party1"]["all"]
    )
    assert said["start"] == "seeded" and said["parties"]["party1"]["public_head"]["first"] == 1


def test_scores(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = (simulated, "--kind", "scores", "--party", "party1", "--out", tmp_path)
    assert attack(monkeypatch, capfd, *argv)[0] == 0
    best = found(tmp_path / "scores.json")["parties"]["party1"]["best"]
    assert best["direction"]["interval"][0] > best["direction"]["baseline"] and best["direction"]["known"] == 40
    assert set(best) == {"norm", "direction"}


def test_batches(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attack(monkeypatch, capfd, simulated, "--kind", "batches", "--party", "party1", "--out", tmp_path)[0] == 0
    best = found(tmp_path / "batches.json")["parties"]["party1"]["best"]
    assert best["interval"][0] > best["chance"] and best["field"] == "Gradient.dh"


def test_inversion_by_the_model_of_a_party_that_captured_nothing(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attack(monkeypatch, capfd, simulated, "--kind", "whitebox", "--party", "party4", "--out", tmp_path)[0] == 0
    party = found(tmp_path / "whitebox.json")["parties"]["party4"]
    assert party["mse"] < party["floor"] and party["readable"]["interval"][0] > party["readable"]["chance"]


def test_features_from_predictions(
    private_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = (private_run, "--kind", "features", "--party", "party1", "--out", tmp_path)
    assert attack(monkeypatch, capfd, *argv)[0] == 0
    party = found(tmp_path / "features.json")["parties"]["party1"]
    assert set(party) == {"generator", "regression"} and party["generator"]["mse"] > 0.9 * party["generator"]["floor"]


def test_completion_of_parties_that_captured_nothing(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "DRAWS", 2)
    argv = (simulated, "--kind", "completion", "--party", "party4", "--out", tmp_path, "--labels", "30")
    assert attack(monkeypatch, capfd, *argv)[0] == 0
    said = found(tmp_path / "completion.json")["parties"]
    assert set(said) == {"party4"} and said["party4"]["known"] == 30
    assert said["party4"]["lowest"] <= said["party4"]["accuracy"] <= said["party4"]["highest"]


def test_inversion_of_one_party(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = (simulated, "--kind", "inversion", "--party", "party2", "--out", tmp_path / "out", "--known", "0.25")
    assert attack(monkeypatch, capfd, *argv)[0] == 0
    said = found(tmp_path / "out" / "inversion.json")
    assert set(said["parties"]) == {"party2"} and said["known"] == 0.25
    assert said["parties"]["party2"]["mse"] < said["parties"]["party2"]["floor"]
    assert said["parties"]["party2"]["ssim"] is None and list((tmp_path / "out").glob("*.png")) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--kind", "label"), "--kind label: no such attack"),
        (("--kind", "labels", "--party", "party9"), "--party party9: no such party"),
        (("--kind", "labels", "--party", "party4"), "--party party4: it captured nothing"),
        (("--kind", "completion", "--labels", "9"), "--labels 9: expected 10, one of every class, to 499"),
        (("--kind", "completion", "--labels", "9999"), "--labels 9999: expected 10"),
        (("--kind", "inversion", "--known", "1.5"), "--known 1.5: expected a share between 0 and 1"),
    ],
)
def test_wrong_options(
    simulated: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    error: str,
) -> None:
    code, said = attack(monkeypatch, capfd, simulated, *options)
    assert code == 2 and f"error: {error}" in said and "Traceback" not in said


def test_a_folder_that_holds_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = attack(monkeypatch, capfd, tmp_path, "--kind", "labels")
    assert code == 2 and "holds no run that has ended: there is no summary.json" in said


def test_a_run_without_capture_explains_how_to_enable_it(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(simulated, tmp_path / "run", ignore=shutil.ignore_patterns("capture*", "attacks"))
    code, said = attack(monkeypatch, capfd, tmp_path / "run", "--kind", "labels")
    assert code == 2 and "kept what crossed its link" in said and "every_party.capture={}" in said
    (tmp_path / "run" / "config.yaml").unlink()
    code, said = attack(monkeypatch, capfd, tmp_path / "run", "--kind", "labels")
    assert code == 2 and "does not say how it was run" in said and "every_party.capture={}" in said


def test_wrong_options_of_a_membership(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for kind, *party in (
        ("membership", "--party", "party1"), ("membership", "--shadows", "0"), ("lira", "--party", "party1"),
    ):  # fmt: skip
        code, said = attack(monkeypatch, capfd, simulated, "--kind", kind, *party)
        assert code == 2 and f"error: {party[0]}" in said


def test_an_audit_needs_no_capture_and_writes_bounds_beside_claims(
    private_run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = attack(monkeypatch, capfd, private_run, "--kind", "audit", "--canaries", "5000")
    assert code == 0, said
    audited = found(private_run / "attacks" / "audit.json")["mechanisms"]
    assert set(audited) == {"federation.privacy, adaptive", "server.privacy.labels"}
    rows, labels = audited["federation.privacy, adaptive"], audited["server.privacy.labels"]
    assert rows["least_gaussian"] > 0 and rows["claimed"] == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    assert labels["least"] > 0 and labels["claimed"] == pytest.approx(2, rel=1e-4) and labels["least_gaussian"] is None


def test_runs_without_a_mechanism_and_audits_of_a_party_are_refused(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = attack(monkeypatch, capfd, simulated, "--kind", "audit", "--out", tmp_path / "out")
    assert code == 2 and "has no mechanism to audit" in said
    code, said = attack(monkeypatch, capfd, simulated, "--kind", "audit", "--party", "party1")
    assert code == 2 and "--party party1: an audit is of mechanisms" in said


def test_membership_of_a_private_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From command to file: under strong noise nothing is found, and the claim is shown with the bound."""
    private = {"clip": 1.0, "noise_multiplier": 5.0, "delta": 1.0e-5}
    made = tree({"name": "split", "embedding": 6}, epochs=2, privacy=private)
    made["federation"] |= {"rows": {"train": 200, "validation": 0, "test": 200}, "batch": 100}
    made["every_party"]["capture"] = {}
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(made))
    assert run(monkeypatch, capfd, "simulate", tmp_path / "federation.yaml", "--out", tmp_path / "run")[0] == 0
    code, said = attack(monkeypatch, capfd, tmp_path / "run", "--kind", "membership", "--shadows", "2")
    assert code == 0, said
    numbers = found(tmp_path / "run" / "attacks" / "membership.json")
    assert 0.38 < numbers["accuracy"] < 0.62 and numbers["least_epsilon"] < 0.5
    claimed = found(tmp_path / "run" / "summary.json")["epsilon"]
    assert numbers["claimed_epsilon"] == claimed and all(value > 0 for value in claimed.values())
    assert numbers["shadows"] == {"count": 2, "training_rows": 200, "from": "rows that the run did not use"}
