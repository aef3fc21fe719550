"""Rows are counted one by one, and never too few times."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import BudgetSpent
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.rows import RowBudget


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
