"""Boosted trees: bins from exact sums and from chosen vectors, and labels from nodes and from a party's own splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks import sums
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.commands.attack import Options, attack
from tests.protocols.test_secureboost import CLEAR, config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> AttackedRun:
    folder = tmp_path_factory.mktemp("trees")
    simulate_captured(config(CLEAR, "federation.protocol.bins=8"), folder, folder)
    return open_run(folder)


def test_sums_tell_bins_that_sides_alone_do_not(trained: AttackedRun) -> None:
    """Three trees of depth 3: 24 vectors over 409 rows."""
    read = sums.read_columns(trained, "party1")
    assert len(read) == 10 and all(one.bins == 8 for one in read)
    found, by_sums, by_sides, base = (
        sum(getattr(one, name) for one in read) / len(read) for name in ("found", "by_sums", "by_sides", "base")
    )
    assert base < 0.2 and by_sums > base + 0.1
    assert found >= by_sums and found > by_sides


def test_chosen_vectors_tell_every_bin(trained: AttackedRun) -> None:
    read = sums.read_actively(trained, "party2")
    assert read.read == read.right == 1 and read.vectors <= 24
    assert read.a_vector >= 17  # of 37 in a vector of many more rows


def test_gradients_in_the_clear_tell_labels_and_own_splits_little(trained: AttackedRun) -> None:
    read = {one.what: one for one in sums.read_labels(trained, "party3", 40, 0)}
    assert read["the first tree's gradients"].area.auc == 1
    assert read["rows of the nodes of 3 trees"].area.auc > 0.9
    assert all(0.5 < one.baseline.auc < 1 for one in read.values())


def test_the_command_writes_both_kinds_of_columns(trained: AttackedRun, tmp_path: Path) -> None:
    attack(trained.folder, "columns", tmp_path, Options(party="party1"))
    assert json.loads((tmp_path / "columns.json").read_text())["seen"]["party1"][0]["bins"] == 8
    attack(trained.folder, "labels", tmp_path, Options(party="party1"))
    assert json.loads((tmp_path / "labels.json").read_text())["parties"]["party1"]["areas"]
