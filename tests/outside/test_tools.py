"""Commands that know protocols by name, with one of another package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.common.contracts.registry import NAMES
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import load
from colonnade.launcher.demo import EXPERIMENTS
from colonnade_lab.attacks import network
from colonnade_lab.comparison.plan import ATTACKED, OWN, PLAIN, SLOW, chosen, read_plan, with_outside
from tests.support.federation import config
from tests.support.household import colonnade


def test_a_comparison_takes_it_if_it_is_named(signs: Path) -> None:
    plan = with_outside(read_plan(), ("signs", "split"))
    assert chosen(plan, ("signs", "split")) == ("signs", "split")
    runs = plan.conditions("signs")
    assert set(runs) == {PLAIN, SLOW, OWN, ATTACKED}
    for run in runs.values():
        federation = load(EXPERIMENTS / run.file, run.set).federation
        assert federation.protocol.name == "signs" and federation.protocol.embedding == 32
    assert "colonnade-signs 1.0" in plan.protocols["signs"].note


def test_a_comparison_of_all_is_of_the_built_in_ones(signs: Path) -> None:
    plan = with_outside(read_plan(), ())
    assert set(plan.protocols) | set(plan.left_out) == set(NAMES)
    with pytest.raises(InputError, match="no protocol 'signs'"):
        chosen(plan, ("signs",))


def test_show_prints_the_one_module_once(signs: Path) -> None:
    code, said = colonnade("show", "signs")
    assert code == 0 and said.count('"""Signs: split learning') == 1
    code, said = colonnade("show", "split")
    assert code == 0 and said.count("/protocols/split.py ─") == 3


def test_a_run_on_a_machine_without_the_package_names_the_remedy() -> None:
    with pytest.raises(ConfigError, match="'signs': unknown protocol") as refused:
        config({"name": "split"}, "federation.protocol.name=signs")
    assert "or install the package that registers it" in refused.value.hint


def test_a_simulated_run_is_attacked_reported_and_resumed(
    signs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "EPOCHS", 10)
    path, run = signs.parent / "federation.yaml", tmp_path / "run"
    path.write_text((Path(__file__).parents[2] / "examples" / "plugin" / "federation.yaml").read_text())
    sets = ("--set", "every_party.capture={}", "--set", "federation.epochs=1")
    code, said = colonnade("simulate", path, "--out", run, *sets, "--chaos", "party2: delay=exp(1s)")
    assert code == 0, said
    for words in (("attack", run, "--kind", "labels"), ("attack", run, "--kind", "inversion"), ("report", run)):
        code, said = colonnade(*words)
        assert code == 0, said
    assert "Signs" in (run / "attacks" / "labels.json").read_text() and "signs" in (run / "report.html").read_text()
    code, said = colonnade("ledger", run / "parties" / "party1")
    assert code == 0 and "Embedding" in said, said
    code, said = colonnade("simulate", "--resume", run, "--set", "federation.epochs=2")
    assert code == 0 and json.loads((run / "summary.json").read_text())["rounds"] == 22, said
