"""Sums of scores: columns that a server regresses on them, and labels from a party's own sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.errors import InputError
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks import scores
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.commands.attack import Options, attack
from tests.protocols.test_hetero_lr import config

ROUNDS = 12  # directions, of ten columns at each of three parties


def run(folder: Path, **protocol: Any) -> AttackedRun:
    cfg = config(f"federation.rounds={ROUNDS}", "federation.evaluate.every=12", **protocol)
    simulate_captured(cfg, folder, folder)
    return open_run(folder)


@pytest.fixture(scope="module")
def blinded(tmp_path_factory: pytest.TempPathFactory) -> AttackedRun:
    return run(tmp_path_factory.mktemp("blinded"))


def test_directions_tell_columns_in_part(blinded: AttackedRun, tmp_path: Path) -> None:
    attack(blinded.folder, "columns", tmp_path, Options(party="party1"))
    seen = json.loads((tmp_path / "columns.json").read_text())["seen"]["party1"]
    assert (seen["columns"], seen["directions"]) == (10, ROUNDS)
    assert seen["base"] + 0.2 < seen["found"] <= seen["span"] < 0.99
    with pytest.raises(InputError, match="no vectors to choose"):
        attack(blinded.folder, "columns", tmp_path, Options(active=True))


def test_directions_of_one_party_lay_its_columns_open(tmp_path: Path) -> None:
    """There are as many of them as columns."""
    read = scores.read_columns(scores.replayed(run(tmp_path, aggregate="clear")), "party1", 0.2, 0)
    assert read.span > 0.9999 and read.found > 0.95 > 0.5 > read.base and read.open and not read.base_open


@pytest.mark.parametrize("protocol", [{"name": "additive", "gradients": "clear"}, {"name": "scorecard"}])
def test_sums_over_bins_tell_both_as_well(tmp_path: Path, protocol: dict[str, str]) -> None:
    sets = (f"federation.protocol={json.dumps(protocol)}", "federation.rounds=4", "federation.evaluate.every=4")
    simulate_captured(config(*sets), tmp_path, tmp_path)
    again = scores.replayed(open_run(tmp_path))
    read = scores.read_columns(again, "party1", 0.2, 0)
    assert 0 < read.directions <= 4 and read.base <= read.found + 0.05 and 0 < read.span < 0.9
    assert scores.read_labels(again, "party1", 40, 0)[0].area.auc > 0.9


def test_sums_of_a_party_tell_labels_of_few_rows(blinded: AttackedRun) -> None:
    read = {one.what: one for one in scores.read_labels(scores.replayed(blinded), "party2", 40, 0)}
    assert read["sums of the first round"].area.auc > 0.9 > read["sums of the first round"].baseline.auc
    assert read["the same, solved for whole labels"].area.auc > 0.9  # 46 lines for 409 rows
    assert read["sums of all rounds"].area.auc > 0.5
