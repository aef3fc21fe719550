"""Per-row releases: the noise on the wire, the bound of a row, the cost, and the factor of Eqs. 3 to 5."""

from __future__ import annotations

import math

import pytest
import torch

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import InputError
from colonnade.common.models.pairwise import Spread
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import Span
from colonnade.common.privacy.noise import secure_normals
from colonnade.common.privacy.rows import RowBudget, RowPlan, RowRelease
from colonnade.common.privacy.shaped import Rescale, Shape

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


def crowd(rows: int, size: float, seed: int = 0) -> torch.Tensor:
    return size * torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed)) / 4


def test_the_papers_factor_is_equation_4() -> None:
    h = crowd(64, 0.1)
    wanted = 2 * 1.0 / Spread.of(h).diameter
    assert wanted > 2
    assert torch.allclose(Rescale("paper", 1.0, 0.1).grown(h), h * wanted)


def test_only_configured_parties_shrink() -> None:
    h = crowd(64, 10.0)
    assert torch.equal(Rescale("paper", 1.0, 0.1).grown(h), h)
    shrunk = Rescale("paper", 1.0, 0.1, shrink=True).grown(h)
    assert Spread.of(shrunk).diameter == pytest.approx(2, rel=1e-5)


def test_evaluations_take_the_factor_of_training() -> None:
    factor = Rescale("paper", 1.0, 0.1)
    factor.grown(crowd(64, 0.1))
    before = float(factor.factor)
    factor.eval()
    factor.grown(crowd(64, 0.01, seed=1))
    assert float(factor.factor) == before


def test_the_factor_follows_from_the_released_embeddings_alone() -> None:
    """Noise of four times the embeddings' own size; the estimate is of the embeddings before it."""
    deviation, factor = 0.4, Rescale("released", 1.0, 0.4)
    noise = torch.Generator().manual_seed(7)
    for seed in range(400):
        grown = factor.grown(crowd(128, 0.4, seed))
        factor.observe(grown + deviation * torch.randn(grown.shape, generator=noise))
    true = Spread.of(crowd(2000, 0.4, seed=10_000)).diameter
    assert float(factor.factor) == pytest.approx(2 / true, rel=0.1)


def test_the_released_factor_is_a_function_of_the_release() -> None:
    one, two = Rescale("released", 1.0, 0.2), Rescale("released", 1.0, 0.2)
    left = crowd(64, 0.5) + 0.2 * torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    one.grown(crowd(64, 0.5))
    two.grown(crowd(64, 123.0))  # other rows
    one.observe(left), two.observe(left)
    assert torch.equal(one.factor, two.factor) and float(one.factor) > 1


def test_grown_embeddings_are_rescaled_by_default() -> None:
    h = torch.cat([crowd(63, 0.1), torch.full((1, 16), 0.25)])  # one row far out, of length 1
    strict = Shape("ball", 1.0, Rescale("paper", 1.0, 0.1))
    loose = Shape("ball", 1.0, Rescale("paper", 1.0, 0.1), leaves=True)
    assert strict(h).norm(dim=1).max() <= 1 + 1e-6 < 1.5 < loose(h).norm(dim=1).max()


def test_one_row_is_no_batch_to_learn_from() -> None:
    factor = Rescale("released", 1.0, 0.1)
    factor.observe(torch.ones(1, 4))
    Rescale("paper", 1.0, 0.1).grown(torch.ones(1, 4))
    assert float(factor.factor) == 1


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_embeddings_that_coincide_do_not_grow_without_end(rule: str) -> None:
    factor, h = Rescale(rule, 1.0, 0.1), torch.ones(8, 4)
    factor.observe(factor.grown(h))
    assert float(factor.factor) <= 1e3
