"""Likelihood ratios: rows of different difficulty, a run that knows its rows by heart, and one that is noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.data.rows import generator
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.membership import infer_members, judged
from colonnade_lab.attacks.simulated import pool, shadows
from lab.tests.attacks.stage import captured

pytestmark = pytest.mark.slow

SETS = (
    "federation.rows={train: 150, validation: 0, test: 150}", "federation.batch=50",
    "server.head={name: mlp, hidden: 64, dropout: 0}", "every_party.model={name: mlp, hidden: 64}",
)  # fmt: skip
NOISED = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 5, delta: 1e-4}"


def test_what_is_usual_for_a_row_tells_more_than_confidence_alone() -> None:
    draws = generator("scores")
    member = torch.arange(2000) % 2 == 0
    hard, lead = 5 * torch.randn(2000, generator=draws), torch.randn(2000, generator=draws) + 2.0 * member
    found = judged((hard + lead).double(), lead.double(), member, torch.arange(2000), 1e-5)
    assert found.area.auc > 0.9 > 0.65 > found.baseline.auc
    assert found.least_epsilon > 1 and found.interval[0] < found.hits < found.interval[1] and found.hits > 0.2
    nothing = judged(hard.double(), hard.double(), member, torch.arange(2000), 1e-5)
    assert abs(nothing.area.auc - 0.5) < 0.04 and nothing.hits < 0.03 and nothing.least_epsilon < 0.4


def test_a_run_that_knows_its_rows_is_found_and_noise_is_not(tmp_path: Path) -> None:
    clear, noised = (
        infer_members(run, shadows(run, pool(run), 4, 0, simulate_captured), 1e-5, 0)
        for more, epochs in (((), 60), ((NOISED,), 5))
        for run in [captured(tmp_path / str(epochs), {"name": "split", "embedding": 16}, *SETS,
                             f"federation.epochs={epochs}", *more)]
    )  # fmt: skip
    assert clear.area.interval[0] > 0.53 and clear.baseline.interval[0] > 0.53
    assert noised.area.auc < 0.6 and noised.least_epsilon < 0.5
