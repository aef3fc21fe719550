"""Per-row releases: the noise on the wire, the bound of a row, and the cost."""

from __future__ import annotations

import math

import pytest
import torch

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import Span
from colonnade.common.privacy.noise import secure_normals
from colonnade.common.privacy.rows import RowBudget, RowPlan, RowRelease
from colonnade.common.privacy.shaped import Rescale

ROWS = torch.arange(2000)


def release(**more) -> RowRelease:
    said = {"clip": 0.5, "noise_multiplier": 3.0, "delta": 1e-5} | more
    config = AdaptivePrivacyConfig(mechanism="adaptive", **said)
    plan = RowPlan.of(config, Span(len(ROWS), 1, lambda rounds: rounds))
    budget = RowBudget(Budget(None, None, 1), torch.zeros(len(ROWS), dtype=torch.int64))
    factor = Rescale(config.rescale, config.clip, plan.deviation, shrink=config.shrink)
    return RowRelease(plan, secure_normals, budget, factor)


@pytest.mark.parametrize(("region", "length"), [("ball", 0.5), ("positive_sphere", math.sqrt(0.5))])
def test_noise_has_the_deviation_of_equation_2(region: str, length: float) -> None:
    stage = release(release=region)
    h = torch.full((2000, 64), 2.0)
    values = torch.cat([stage(h, rows=ROWS) for _ in range(10)]).double()  # 1.3 million entries
    inside = length / math.sqrt(64)
    assert abs(values.mean() - inside) < 5 * 3 / math.sqrt(values.numel())
    assert (values - inside).std().item() == pytest.approx(2 * 3.0 * 0.5, rel=0.01)


def test_rows_are_bounded_for_any_model() -> None:
    wild = torch.tensor([[1e30, -1e30], [float("nan"), float("inf")], [-5.0, 1.0]])
    out = release(noise_multiplier=1e-4, release="sphere")(wild, rows=ROWS[:3])
    assert torch.allclose(out.norm(dim=1), torch.tensor([0.5, 0.0, 0.5]), atol=1e-3)


def test_epsilon_grows_with_the_releases_of_the_worst_row_only() -> None:
    stage = release(steps={"clip": 1.0})
    one = stage(torch.ones(1000, 2), rows=ROWS[:1000]).epsilon
    same = stage(torch.ones(1000, 2), rows=ROWS[1000:]).epsilon
    more = stage(torch.ones(1, 2), rows=ROWS[5:6], evaluation=True).epsilon
    assert one == same < more


def test_without_noise_on_steps_no_epsilon_is_named() -> None:
    assert release()(torch.ones(4, 2), rows=ROWS[:4]).epsilon is None


def test_the_papers_factor_has_no_epsilon_and_is_marked() -> None:
    out = release(rescale="paper")(torch.ones(4, 2), rows=ROWS[:4])
    assert out.epsilon is None and "heuristic" in out.mechanism and "sigma=3" in out.mechanism


def test_evaluations_in_the_clear_void_it() -> None:
    stage = release(evaluate="clean")
    assert stage(torch.ones(4, 2), rows=ROWS[:4], evaluation=True).epsilon is None
    assert stage(torch.ones(4, 2), rows=ROWS[:4]).epsilon is None


def test_rows_must_be_named() -> None:
    for rows in (None, ROWS[:3]):
        with pytest.raises(InputError, match="needs their numbers"):
            release()(torch.ones(4, 2), rows=rows)
