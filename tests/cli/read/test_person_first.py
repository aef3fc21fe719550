"""Epsilon of a person with a row at every party stands before that of one party, wherever a run's privacy is said.

Pages and the card count the releases in the ledgers, those of predictions included.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.tracking.allowed import epsilons
from colonnade.reports.guarantee import with_ledgers
from colonnade.runs import load
from colonnade.server.member.summary import protection
from tests.support.federation import config, tree
from tests.support.household import colonnade

SECRET = {"clip": 1, "noise_multiplier": 60, "delta": 1e-5}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("person")
    made = tree({"name": "split"}, rounds=4, epochs=0, privacy=SECRET)
    (folder / "federation.yaml").write_text(yaml.safe_dump(made))
    found = {"check": colonnade("check", folder / "federation.yaml")[1]}
    found["simulate"] = colonnade("simulate", folder / "federation.yaml", "--out", folder / "run")[1]
    release(folder / "run", "party1", 3, 60)
    found["run"] = str(folder / "run")
    assert colonnade("card", folder / "run", "--out", folder / "card.md")[0] == 0
    assert colonnade("report", folder / "run", "--out", folder / "report.html")[0] == 0
    found["card"], found["report"] = (folder / "card.md").read_text(), (folder / "report.html").read_text()
    found["summary"] = (folder / "run" / "summary.json").read_text()
    return found


def release(run: Path, party: str, count: int, noise_multiplier: float) -> None:
    """Releases that a party pays for after the run's end, as predictions do."""
    ledger = RunFolder(run).party(party).ledger
    ledger.parent.mkdir(parents=True, exist_ok=True)
    budget = Budget(ledger, None, count, noise_multiplier=noise_multiplier)
    for _ in range(count):
        budget.spend()
    budget.close()


@pytest.mark.parametrize("where", ["check", "simulate", "card", "report"])
def test_a_persons_epsilon_is_the_first(outputs: dict[str, str], where: str) -> None:
    training = json.loads(outputs["summary"])["person"]["epsilon"]
    person = training if where in ("check", "simulate") else load(outputs["run"]).summary["person"]["epsilon"]
    assert (person > training + 0.01) == (where in ("card", "report"))
    text = " ".join(outputs[where].lower().split())
    first = re.search(r"epsilon ([\d.]+\d)", text)
    assert first is not None and float(first[1]) == pytest.approx(person, abs=0.006), text[:400]
    assert 0 <= text.find("a person at all 4 parties: epsilon") < text.find("one party alone: epsilon")


@pytest.mark.parametrize(
    ("protocol", "privacy"),
    [
        (
            "{name: split}",
            "{clip: 1, noise_multiplier: 60, delta: 1.0e-5, adjacency: participation, accounting: renyi}",
        ),
        (
            "{name: vimadmm, tau: 1}",
            "{mechanism: adaptive, clip: 1, noise_multiplier: 9, delta: 1.0e-5, "
            "steps: {clip: 1, rate: 0.001, noise_multiplier: 40}}",
        ),
        ("{name: split_avg, aggregate: blinded}", "{clip: 1, noise_multiplier: 60, once: {colluders: 1}}"),
    ],
)
def test_ledgers_give_what_the_server_would_sum_up(tmp_path: Path, protocol: str, privacy: str) -> None:
    sets = f"federation.privacy={privacy}", "federation.epochs=0", "federation.rounds=1"
    cfg = config(yaml.safe_load(protocol), *sets)
    made = Schedule(cfg.federation, 1797, 0)
    assert made.privacy is not None
    trained = dict.fromkeys(cfg.federation.names, 5.0)
    for name, count in {"party1": 6, "party2": 9, "party3": 5, "party4": 5}.items():
        release(tmp_path, name, count, made.privacy.noise_multiplier)

    ctx = cast("Any", SimpleNamespace(federation=cfg.federation, schedule=made, config=cfg.server))

    def summed(releases: dict[str, float]) -> dict[str, Any]:
        return protection(ctx, releases)

    found = with_ledgers(summed(trained), tmp_path)
    assert found["privacy"].pop("counted") == list(cfg.federation.names)
    assert found == summed({**trained, "party1": 6, "party2": 9}) != summed(trained)


def test_what_no_ledger_here_counts_is_said_in_the_same_sentence(
    outputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(outputs["run"], tmp_path / "run"))
    shutil.rmtree(run / "parties" / "party2")
    ledger = run / "parties" / "party1" / "ledger.jsonl"
    counted = load(run).summary
    assert counted["privacy"]["counted"] == ["party1", "party3", "party4"]
    assert colonnade("card", run)[0] == colonnade("report", run)[0] == 0
    for page in ("card.md", "report.html"):
        sentences = re.findall(r"epsilon \d[^<|]*", (run / page).read_text())
        assert sentences and all("; predictions of party2 are not counted" in sentence for sentence in sentences), page
    ledger.write_bytes(b"")
    assert load(run).summary["person"]["epsilon"] == json.loads(outputs["summary"])["person"]["epsilon"]
    assert load(run).summary["privacy"]["counted"] == ["party3", "party4"]
    (run / "card.md").unlink()
    for command in (("card", run), ("report", run), ("report", ledger.parent), ("ledger", ledger.parent)):
        code, said = colonnade(*command)
        assert code != 0 and "ledger.jsonl has 0 bytes, and had" in " ".join(said.split())
    assert not (run / "card.md").exists()


def test_in_the_summary_and_for_trackers(outputs: dict[str, str]) -> None:
    summary = json.loads(outputs["summary"])
    assert list(summary).index("person") < list(summary).index("epsilon")
    sent = epsilons(summary, ("party1",))
    assert sent == {"epsilon_of_a_person": summary["person"]["epsilon"], "epsilon/party1": summary["epsilon"]["party1"]}
    assert list(sent) == ["epsilon_of_a_person", "epsilon/party1"]


def test_no_number_stands_for_a_person_without_a_bound() -> None:
    assert epsilons({"person": {"epsilon": None}, "epsilon": {"a": 1.0}}, ("a",)) == {"epsilon/a": 1.0}
