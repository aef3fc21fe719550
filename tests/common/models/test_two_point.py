"""The two-point estimate against autograd, and state that a second pass through a model must not change."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.models.losses import CrossEntropy
from colonnade.common.models.norm import BatchNorm
from colonnade.common.models.zeroth_order import TwoPoint, row_losses

ROWS, COLUMNS, CLASSES = 12, 5, 3
draws = st.sampled_from(["sphere", "normal"])
seeds = st.integers(0, 10**6)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def network(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(COLUMNS, 4), nn.Tanh(), nn.Linear(4, CLASSES)).to(dtype)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=seed + number))
    return model


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def estimated(model: nn.Module) -> Tensor:
    return flat([parameter.grad for parameter in model.parameters() if parameter.grad is not None])


def two_point(model: nn.Module, seed: int = 0, draw: str = "sphere", mu: float = 1e-3) -> TwoPoint:
    return TwoPoint(model, torch.Generator().manual_seed(seed), draw=draw, mu=mu)


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return flat(list(torch.autograd.grad(functional.cross_entropy(model(x), y), list(model.parameters()))))


def slope_of(pair: list[Tensor], y: Tensor, mu: float) -> float:
    before, after = (row_losses(CrossEntropy(), logits, y) for logits in pair)
    return float((after - before).mean()) / mu


@given(draws, seeds)
def test_for_a_small_step_the_difference_is_the_derivative_along_the_direction(draw: str, seed: int) -> None:
    model, x, y = network(seed), normal(ROWS, COLUMNS, seed=seed + 9), torch.arange(ROWS) % CLASSES
    estimate = two_point(model, seed, draw, mu=1e-7)
    slope = slope_of(estimate(x), y, 1e-7)
    estimate.estimate(1.0)
    d = sum(parameter.numel() for parameter in model.parameters())
    u = estimated(model) / (d if draw == "sphere" else 1)
    assert slope == pytest.approx(float(gradient(model, x, y) @ u), rel=1e-4, abs=1e-6)
    if draw == "sphere":
        assert float(u.norm()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("draw", ["sphere", "normal"])
def test_the_mean_of_many_estimates_is_the_gradient(draw: str) -> None:
    model, x, y = nn.Linear(3, CLASSES).double(), normal(ROWS, 3, seed=9), torch.arange(ROWS) % CLASSES
    nn.init.constant_(model.weight, 0.5)
    exact, estimate, total = gradient(model, x, y), two_point(model, 1, draw, mu=1e-5), torch.zeros(12).double()
    for _ in range(600):
        estimate.estimate(slope_of(estimate(x), y, 1e-5))
        total += estimated(model)
    # d = 12: one estimate is off by some sqrt(12) of the gradient, the mean of 600 by a seventh.
    assert float((total / 600 - exact).norm() / exact.norm()) < 0.3


@given(seeds)
def test_a_second_point_is_where_the_direction_leads(seed: int) -> None:
    """The model is left at the first point, to the bit."""
    model, x = network(seed), normal(ROWS, COLUMNS)
    before, others = copy.deepcopy(model.state_dict()), [normal(ROWS, COLUMNS, seed=n) for n in (1, 2)]
    estimate = two_point(model, seed, mu=0.3)
    here, there, *beside = estimate(x, *others)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not here.requires_grad and torch.equal(here, model(x).detach())
    assert all(torch.allclose(found, model(other)) for found, other in zip(beside, others, strict=True))
    estimate.estimate(0.3 / 39)  # phi slope u = mu u
    nn.utils.vector_to_parameters(flat(list(model.parameters())) + estimated(model), model.parameters())
    assert torch.allclose(there, model(x))


def test_directions_are_new_every_time_and_the_same_from_equal_seeds() -> None:
    model, x = network(), normal(ROWS, COLUMNS)
    one, two, other = two_point(model, 1), two_point(model, 1), two_point(model, 2)
    first, again, apart = one(x)[1], two(x)[1], other(x)[1]
    assert torch.equal(first, again) and not torch.equal(first, apart) and not torch.equal(first, one(x)[1])


def test_parameters_that_are_not_trained_stay_out_of_it() -> None:
    model, x = network(), normal(ROWS, COLUMNS)
    model[0].requires_grad_(False)
    estimate = two_point(model)
    estimate(x)
    estimate.estimate(1.0)
    assert model[0].weight.grad is None and model[0].bias.grad is None
    assert float(estimated(model).norm()) == pytest.approx(4 * CLASSES + CLASSES)  # phi is their number


def test_all_passes_see_the_same_dropout_and_the_next_ones_another() -> None:
    model = nn.Sequential(nn.Linear(COLUMNS, 200).double(), nn.Dropout(0.5))
    x, estimate = normal(ROWS, COLUMNS), two_point(model, mu=1e-6)
    torch.manual_seed(3)
    here, there, beside = ((outputs == 0) for outputs in estimate(x, x + 1))
    assert torch.equal(here, there) and torch.equal(here, beside) and 0.4 < here.double().mean() < 0.6
    after = torch.get_rng_state()
    assert not torch.equal(estimate(x)[0] == 0, here)
    torch.manual_seed(3)
    model(x)
    assert torch.equal(torch.get_rng_state(), after)  # as after one pass


def test_running_statistics_go_on_as_after_one_pass() -> None:
    model = nn.Sequential(nn.Linear(COLUMNS, 4), BatchNorm(4))
    run_cache, x = copy.deepcopy(model), normal(ROWS, COLUMNS, dtype=torch.float32)
    here, there = two_point(model, mu=0.5)(x)
    assert torch.equal(here, run_cache(x)) and not torch.allclose(here, there)
    for name, value in run_cache.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@given(seeds, st.floats(1e-7, 1e-3), st.booleans())
def test_a_tiny_difference_is_exact_for_the_logits_that_there_are(seed: int, size: float, soft: bool) -> None:
    """Against numpy and scipy in double precision."""
    logits = normal(ROWS, CLASSES, seed=seed, dtype=torch.float32) * 5
    other = logits + size * normal(ROWS, CLASSES, seed=seed + 1, dtype=torch.float32)
    y = torch.arange(ROWS) % CLASSES
    sure = functional.one_hot(y, CLASSES).double()
    shares = 0.9 * sure + 0.1 / CLASSES if soft else sure

    def oracle(z: np.ndarray) -> np.ndarray:
        return logsumexp(z, axis=1) - (shares.numpy() * z).sum(1)

    expected = np.mean(oracle(other.numpy().astype(float)) - oracle(logits.numpy().astype(float)))
    targets = shares.float() if soft else y
    found = float((row_losses(CrossEntropy(), other, targets) - row_losses(CrossEntropy(), logits, targets)).mean())
    assert found == pytest.approx(expected, abs=size * 1e-6)
