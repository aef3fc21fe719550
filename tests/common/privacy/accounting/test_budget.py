"""The privacy budget: a crash can only increase the amount spent."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from colonnade.common.errors import BudgetSpent, EnvironmentFault
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.ledger import Ledger


def spend(budget: Budget, times: int) -> None:
    for _ in range(times):
        budget.spend()


def test_closing_returns_the_rest_of_a_block(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = Budget(path, 1000, 640)  # in blocks of 20
    spend(first, 33)
    first.close()
    assert first.releases == 33
    assert Budget(path, 1000, 640).releases == 33


def test_a_killed_process_forfeits_the_rest_of_its_block(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    spend(Budget(path, 1000, 640), 33)
    assert Budget(path, 1000, 640).releases == 40


def test_a_block_is_reserved_before_its_first_release(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    budget = Budget(path, None, 320)
    assert not path.exists()
    budget.spend()
    assert json.loads(path.read_text())["reserved"] == 10
    spend(budget, 9)
    assert len(path.read_text().splitlines()) == 1
    budget.spend()
    assert len(path.read_text().splitlines()) == 2


def test_the_limit_holds_over_all_starts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for expected in (4, 8, 10):
        budget = Budget(path, 10, 1)
        while budget.releases < expected:
            budget.spend()
        budget.close()
    with pytest.raises(BudgetSpent, match="it allowed 10 releases"):
        Budget(path, 10, 1).spend()


def test_it_shares_the_ledger_with_the_messages_that_left(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(
        '{"round": 1, "kind": "Embedding", "to": "server"}\n'
        '{"reserved": 3, "noise_multiplier": 1.0}\n'
        '{"round": 2, "kind": "Emb'
    )
    assert Budget(path, None, 1).releases == 3
    Ledger(path, after=0)  # and the ledger reads past the reservations


def test_without_a_file_the_count_lives_where_a_rollback_finds_it() -> None:
    counts = {"releases": 5}
    budget = Budget(None, 8, 1, counts)
    spend(budget, 2)
    assert counts == {"releases": 7}
    counts["releases"] = 5  # rolled back
    spend(budget, 3)
    with pytest.raises(BudgetSpent):
        budget.spend()


def test_nothing_leaves_when_the_disk_refuses(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        Budget(tmp_path / "nowhere" / "ledger.jsonl", None, 1).spend()


def test_releases_with_less_noise_cost_more(tmp_path: Path) -> None:
    """A run that goes on with another sigma: 10 releases at sigma 2 cost what 40 cost at sigma 4."""
    path = tmp_path / "ledger.jsonl"
    first = Budget(path, None, 1, noise_multiplier=2.0)
    spend(first, 10)
    first.close()
    assert Budget(path, None, 1, noise_multiplier=2.0).releases == 10
    assert Budget(path, None, 1, noise_multiplier=4.0).releases == 40
    assert Budget(path, None, 1, noise_multiplier=3.0).releases == 22.5
    for sigma in (0.3, 0.7, 1.1, 2.3, 3.7):  # parts of releases are rounded up, and whole ones add to them exactly
        (other := tmp_path / f"{sigma}.jsonl").write_bytes(path.read_bytes())
        found = Budget(other, None, 32_000, noise_multiplier=sigma)
        already, exact = found.releases, 10 * (Fraction(str(sigma)) / 2) ** 2
        spend(found, 1000)
        assert exact <= already < exact + Fraction(1, 2**20) and found.releases == already + 1000
    assert epsilon(40, 4.0, 1e-5, "replace") == pytest.approx(epsilon(10, 2.0, 1e-5, "replace"))
