"""Budget of steps over secretly drawn rows: paid for on the disk before they are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.common.errors import BudgetSpent, CheckpointError, EnvironmentFault
from colonnade.common.privacy.accounting.budget import Budget, StepBudget
from colonnade.common.privacy.accounting.sampled import SampledGaussian

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
