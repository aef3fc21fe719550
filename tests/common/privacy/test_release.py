"""The Gaussian release: its noise, and the largest distance of two clipped matrices."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.privacy import PrivacyConfig
from colonnade.common.errors import BudgetSpent
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.gaussian import GaussianPlan, GaussianRelease, clip_frobenius, through_clip
from colonnade.common.privacy.noise import secure_normals, seeded_normals


def release(clip: float, sigma: float, budget: Budget | None = None, **more) -> GaussianRelease:
    settings = PrivacyConfig(clip=clip, noise_multiplier=sigma, **more)
    return GaussianRelease(GaussianPlan(settings, sigma, 1, 1, None), secure_normals, budget or Budget(None, None, 1))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_clipping_bounds_the_norm_and_keeps_the_direction(values: list[float], threshold: float) -> None:
    matrix = torch.tensor(values, dtype=torch.float64)
    clipped = clip_frobenius(matrix, threshold)
    assert clipped.norm() <= threshold * (1 + 1e-12)
    if matrix.norm() <= threshold:
        assert torch.equal(clipped, matrix)
    else:
        assert torch.allclose(clipped * matrix.norm(), matrix * threshold, rtol=1e-9)


def test_two_data_sets_with_clipped_outputs_further_apart_than_the_threshold() -> None:
    """The paper's sensitivity C holds only if an absent party sends zeros: a network with biases does not."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    rows = torch.randn(32, 4)
    one, other = (clip_frobenius(network(x).detach().double(), 1.0) for x in (rows, -3 * rows))
    zeroed = clip_frobenius(network(torch.zeros(32, 4)).detach().double(), 1.0)
    absent = torch.zeros(32, 5, dtype=torch.float64)
    assert zeroed.norm() > 0.99  # the paper's zeroed-out data set is not an absent party
    assert (one - absent).norm() <= 1 + 1e-12
    opposite = clip_frobenius(-one * 7, 1.0)
    assert (one - opposite).norm() > 1.99  # 2C is reached
    assert (one - other).norm() > 1.0  # and two data sets exceed C in this network


def test_noise_is_added_to_the_clipped_matrix_with_the_configured_variance() -> None:
    stage = release(clip=0.5, sigma=3.0)
    matrix = torch.full((1000, 60), 2.0)
    values = torch.cat([stage(matrix) for _ in range(40)]).double()  # 2.4 million entries
    centre = 0.5 / math.sqrt(60_000)
    assert abs(values.mean() - centre) < 5 * 1.5 / math.sqrt(values.numel())
    assert (values - centre).var().item() == pytest.approx((3.0 * 0.5) ** 2, rel=0.01)


def test_low_bits_reveal_nothing() -> None:
    """Every value lies on a coarse grid, for any matrix."""
    value = release(clip=1.0, sigma=2.0)(torch.rand(50, 3)).double()
    grid = 2.0**-9  # the power of two at or below 2 / 1024
    assert torch.equal(value, torch.round(value / grid) * grid)


def test_it_reports_its_mechanism_and_cost() -> None:
    budget = Budget(None, 2, 2)
    stage = release(1.0, 4.0, budget)
    first, second = stage(torch.ones(2, 2)), stage(torch.ones(2, 2))
    assert first.mechanism == "gaussian C=1 sigma=4 delta=1e-05 replace"
    assert first.epsilon is not None and second.epsilon is not None and 0 < first.epsilon < second.epsilon
    assert first.dtype == torch.float32 and not first.requires_grad
    with pytest.raises(BudgetSpent, match="it allowed 2 releases"):
        stage(torch.ones(2, 2))


def test_values_that_are_not_finite_count_as_zero() -> None:
    """No noise would hide such a value."""
    private = torch.tensor([[1.0, float("inf")], [float("nan"), -2.0]])
    assert torch.isfinite(release(1.0, 4.0)(private)).all()
    assert torch.equal(clip_frobenius(private, 10.0), torch.tensor([[1.0, 0.0], [0.0, -2.0]]))


def test_no_guarantee_is_claimed_without_noise() -> None:
    for more in ({"seeded": True}, {"evaluate": "clean"}):
        released = release(1.0, 4.0, **more)(torch.ones(2, 2))
        assert released.epsilon is None and ("seeded" in released.mechanism) == ("seeded" in more)


def test_clean_evaluations_are_named_and_cost_nothing() -> None:
    budget = Budget(None, 1, 1)
    released = release(1.0, 4.0, budget, evaluate="clean")(torch.ones(2, 2), evaluation=True)
    assert torch.equal(released, torch.ones(2, 2))
    assert released.epsilon is None and released.mechanism == "none (benchmark)" and budget.releases == 0


def test_evaluations_may_be_zeros_which_cost_nothing() -> None:
    budget = Budget(None, 1, 1)
    stage = release(1.0, 4.0, budget, evaluate="none")
    zeros = stage(torch.ones(2, 2), evaluation=True)
    assert torch.equal(zeros, torch.zeros(2, 2)) and zeros.mechanism == "zeros" and budget.releases == 0
    assert stage(torch.ones(2, 2)).norm() > 0 and budget.releases == 1


@pytest.mark.parametrize("threshold", [0.5, 50.0])
def test_a_gradient_passes_the_clip_as_autograd_has_it(threshold: float) -> None:
    matrix = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(4, 3, dtype=torch.float64)
    clipped = matrix * (threshold / torch.clamp(matrix.norm(), min=threshold))
    (expected,) = torch.autograd.grad(clipped, matrix, gradient)
    torch.testing.assert_close(through_clip(matrix.detach(), threshold, gradient), expected)


def test_seeded_noise_repeats() -> None:
    settings = PrivacyConfig(clip=1.0, noise_multiplier=1.0, seeded=True)
    one, two = (
        GaussianRelease(
            GaussianPlan(settings, 1.0, 1, 1, None),
            seeded_normals(torch.Generator().manual_seed(3)),
            Budget(None, None, 1),
        )(torch.ones(3, 3))
        for _ in range(2)
    )
    assert torch.equal(one, two)
