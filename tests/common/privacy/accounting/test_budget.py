"""The budgets of releases, rows and steps: spent on the disk first, so that a crash can only increase them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import BudgetSpent, CheckpointError, EnvironmentFault
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.accounting.budget import Budget, StepBudget
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.rows import RowBudget


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


def fresh(limit: int | None = None, path: Path | None = None) -> RowBudget:
    return RowBudget(Budget(path, limit, 20), torch.zeros(6, dtype=torch.int64))


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=30))
def test_the_worst_row_counts(batches: list[set[int]]) -> None:
    budget, counts = fresh(), [0] * 6
    for batch in batches:
        for row in batch:
            counts[row] += 1
        assert budget.spend(torch.tensor(sorted(batch))) == max(counts)


@given(
    st.decimals("0.000000001", 3, places=9).map(float),
    st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.booleans(), st.booleans()), max_size=40),
)
def test_no_partition_into_sessions_counts_less(step: float, releases: list[tuple[set[int], bool, bool]]) -> None:
    """Sessions begin anew in one process, from the counts in memory or from a checkpoint's: neither loses a part."""
    cost = AdaptivePrivacyConfig(
        mechanism="adaptive", clip=1, noise_multiplier=1, delta=1e-5, steps={"clip": 1, "cost": step}
    ).training_cost(1)
    exact, counts = [Fraction(0)] * 6, torch.zeros(6, dtype=torch.int64)
    paid = Budget(None, None, 20)
    budget = RowBudget(paid, counts)
    for rows, evaluation, interrupted in releases:
        if interrupted:
            budget = RowBudget(paid, counts)
        for row in rows:
            exact[row] += 1 if evaluation else 1 + Fraction(str(step))
        spent = budget.spend(torch.tensor(sorted(rows)), *([] if evaluation else [cost]))
        assert spent == math.ceil(max(exact))


def test_more_parts_than_64_bits_hold_are_refused_and_not_counted() -> None:
    budget = fresh()
    budget.spend(torch.arange(6), 2**62)
    for _ in range(2):
        with pytest.raises(BudgetSpent, match="more than are counted"):
            budget.spend(torch.tensor([3]), 2**62)


def test_the_release_that_would_pass_the_limit_is_refused_and_not_counted() -> None:
    budget = fresh(limit=2)
    for _ in range(2):
        budget.spend(torch.arange(6))
    with pytest.raises(BudgetSpent):
        budget.spend(torch.tensor([3]))


def test_another_start_counts_the_spent_budget_of_every_row(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = fresh(path=path)
    first.spend(torch.arange(6))
    first.spend(torch.tensor([0]))  # killed: nothing is given back
    assert fresh(path=path).spend(torch.tensor([5])) == 3


def test_a_limit_holds_over_starts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fresh(path=path, limit=3).spend(torch.arange(6))
    again = fresh(path=path, limit=3)
    again.spend(torch.arange(3))
    assert again.spend(torch.arange(3, 6)) == 2  # rows of one epoch, in two batches
    again.spend(torch.arange(6))
    with pytest.raises(BudgetSpent):
        again.spend(torch.tensor([0]))


STEPS = SampledGaussian(0.1, 2.0, 640)  # in blocks of 10


def test_steps_are_on_the_disk_before_they_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    budget = StepBudget(path, STEPS)
    for taken in range(1, 26):
        budget.spend()
        assert taken <= StepBudget(path, STEPS).steps < taken + 10  # what a start after a crash finds
    budget.close()
    assert StepBudget(path, STEPS).steps == budget.steps == 25


def test_the_limit_holds_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(64):  # each start crashes within its first block
        StepBudget(path, STEPS).spend()
    with pytest.raises(BudgetSpent, match="it allowed 640 steps") as refusal:
        StepBudget(path, STEPS).spend()
    assert refusal.value.hint


def test_releases_in_the_same_ledger_are_counted_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    releases, steps = Budget(path, 20, 20, noise_multiplier=3.0), StepBudget(path, STEPS)
    releases.spend(), steps.spend(), releases.spend()
    releases.close(), steps.close()
    assert Budget(path, 20, 20, noise_multiplier=3.0).releases == 2 and StepBudget(path, STEPS).steps == 1


@pytest.mark.parametrize("other", [SampledGaussian(0.2, 2.0, 640), SampledGaussian(0.1, 2.5, 640)])
def test_steps_of_another_kind_are_refused(tmp_path: Path, other: SampledGaussian) -> None:
    path = tmp_path / "ledger.jsonl"
    StepBudget(path, STEPS).spend()
    with pytest.raises(CheckpointError, match="steps were taken with"):
        StepBudget(path, other)


@pytest.mark.parametrize("steps", [7, {"reserved": -1.5, "rate": 0.1, "multiplier": 2.0}, {"reserved": 1}])
def test_an_altered_line_is_refused(tmp_path: Path, steps: object) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps({"steps": steps}) + "\n")
    with pytest.raises(CheckpointError, match="a line that reserves steps was altered"):
        StepBudget(path, STEPS)


def test_a_ledger_that_cannot_be_written_lets_no_step_pass(tmp_path: Path) -> None:
    budget = StepBudget(tmp_path / "missing" / "ledger.jsonl", STEPS)
    with pytest.raises(EnvironmentFault, match="no step is taken without it"):
        budget.spend()
    assert budget.steps == 0


def test_seeded_counts_are_in_the_state_alone() -> None:
    kept: dict[str, float] = {}
    StepBudget(None, STEPS, kept).spend()
    assert kept == {"steps": 1} and StepBudget(None, STEPS, kept).steps == 1
