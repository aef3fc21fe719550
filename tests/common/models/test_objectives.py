"""Training objectives: means, exact changes and class weights, against autograd, scipy and subtraction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from colonnade.common.models.losses import CrossEntropy, Objective, Squared
from colonnade.server.training.classes import WeightedCrossEntropy, balanced

WEIGHTS = torch.tensor([0.2, 1.0, 3.5, 0.7], dtype=torch.float64)
ALL: dict[str, Objective] = {
    "cross_entropy": CrossEntropy(),
    "squared": Squared(),
    "weighted": WeightedCrossEntropy(WEIGHTS),
}


def batch(name: str, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Logits float64 (rows, 4), and targets."""
    source = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, 4, dtype=torch.float64, generator=source)
    if name == "squared":
        return logits, torch.randn(rows, 4, dtype=torch.float64, generator=source)
    return logits, torch.randint(0, 4, (rows,), generator=source)


@pytest.mark.parametrize("name", ALL)
@given(rows=st.integers(1, 20), seed=st.integers(0, 99))
def test_the_mean_is_that_of_the_values_and_its_gradient_theirs(name: str, rows: int, seed: int) -> None:
    loss, (logits, targets) = ALL[name], batch(name, rows, seed)
    point = logits.clone().requires_grad_()
    mean = loss.mean(point, targets)
    (slope,) = torch.autograd.grad(mean, point)
    torch.testing.assert_close(mean.detach(), loss.value(logits, targets).mean())
    torch.testing.assert_close(slope, loss.gradient(logits, targets) / rows)


@pytest.mark.parametrize("name", ALL)
@given(rows=st.integers(1, 6), steps=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_change_is_the_difference_of_two_losses(name: str, rows: int, steps: int, seed: int) -> None:
    loss, (logits, targets) = ALL[name], batch(name, rows, seed)
    e = torch.randn(rows, steps, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    there = torch.stack([loss.value(logits + e[:, j], targets) for j in range(steps)], dim=1)
    torch.testing.assert_close(loss.change(e, logits, targets), there - loss.value(logits, targets)[:, None])


@pytest.mark.parametrize("name", ALL)
def test_a_tiny_change_keeps_its_digits_in_float32(name: str) -> None:
    loss, (logits, targets) = ALL[name], batch(name, 8, 0)
    e = 1e-6 * torch.randn(8, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = loss.change(e, logits, targets)
    torch.testing.assert_close(loss.change(e.float(), logits.float(), targets), exact, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0])
def test_the_weighted_proximal_map_agrees_with_scipy(rho: float) -> None:
    loss, (centre, targets) = ALL["weighted"], batch("weighted", 8, 3)
    found = loss.proximal(centre, targets, rho)
    for j in range(len(centre)):
        own, target = centre[j : j + 1], targets[j : j + 1]

        def objective(z: np.ndarray, own: Tensor = own, target: Tensor = target) -> tuple[float, np.ndarray]:
            point = torch.from_numpy(z)[None]
            value = loss.value(point, target).sum() + rho / 2 * (point - own).square().sum()
            return float(value), (loss.gradient(point, target) + rho * (point - own))[0].numpy()

        best = minimize(objective, np.zeros(4), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-11})
        np.testing.assert_allclose(found[j].numpy(), best.x, atol=2e-4, rtol=1e-5)
        assert objective(found[j].numpy())[0] <= best.fun + 1e-9


def test_weights_of_one_change_nothing() -> None:
    logits, targets = batch("weighted", 16, 5)
    plain, ones = CrossEntropy(), WeightedCrossEntropy(torch.ones(4))
    for call in ("value", "gradient", "mean"):
        torch.testing.assert_close(getattr(ones, call)(logits, targets), getattr(plain, call)(logits, targets))
    torch.testing.assert_close(ones.proximal(logits, targets, 0.5), plain.proximal(logits, targets, 0.5))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=50))
def test_balanced_weights_give_every_class_the_same_and_a_row_one_on_average(classes: list[int]) -> None:
    labels = torch.tensor(classes)
    weights = balanced(labels, 4)
    there = labels.unique()
    sums = torch.stack([weights[labels][labels == number].sum() for number in there])
    torch.testing.assert_close(sums, torch.full_like(sums, len(classes) / 4))
    torch.testing.assert_close(weights[labels].mean(), torch.tensor(len(there) / 4, dtype=torch.float64))
