"""The losses and their proximal maps, against scipy, autograd and their own conditions of optimality."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import wrightomega
from torch import Tensor
from torch.nn import functional

from colonnade.common.errors import InputError
from colonnade.common.models.losses import (
    LOSSES,
    CrossEntropy,
    Logistic,
    Loss,
    Squared,
    simplex_posterior,
    wright_omega,
)

RHOS = [1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 1e3, 1e6]


def batch(loss: str, rows: int = 64, classes: int = 10, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Centres and targets in float64."""
    source = torch.Generator().manual_seed(rows + classes)
    columns = 1 if loss == "logistic" else classes
    centre = torch.randn(rows, columns, dtype=torch.float64, generator=source) * scale
    if loss == "cross_entropy":
        return centre, torch.randint(0, classes, (rows,), generator=source)
    if loss == "logistic":
        return centre, torch.randint(0, 2, (rows,), generator=source)
    return centre, torch.randn(rows, columns, dtype=torch.float64, generator=source)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 2e-14)])
def test_wright_omega_agrees_with_scipy(dtype: torch.dtype, tolerance: float) -> None:
    u = torch.cat((torch.linspace(-80, 20, 5001), torch.logspace(1, 7, 1000))).to(dtype)
    expected = torch.from_numpy(wrightomega(u.double().numpy()))
    assert ((wright_omega(u).double() - expected).abs() <= tolerance * expected).all()


def test_wright_omega_stays_positive_where_the_exponential_underflows() -> None:
    omega = wright_omega(torch.tensor([-1e30, -1e4, -104.0]))
    assert (omega > 0).all()
    assert (omega < 1e-35).all()


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
def test_simplex_posterior_is_the_softmax_of_its_own_minimiser(rho: float, scale: float) -> None:
    source = torch.Generator().manual_seed(1)
    for classes in (1, 2, 10, 50):
        centre = torch.randn(200, classes, dtype=torch.float64, generator=source) * scale
        posterior = simplex_posterior(centre, rho)
        z = centre - centre.amax(dim=1, keepdim=True) - posterior / rho
        # z is known to a few units in the last place of 1/rho, and softmax passes that on.
        tolerance = 1e-13 * max(1.0, 1 / rho)
        torch.testing.assert_close(z.softmax(dim=1), posterior, atol=tolerance, rtol=0)
        torch.testing.assert_close(posterior.sum(dim=1), torch.ones(200, dtype=torch.float64))


def proximal_objective(loss: Loss, centre: Tensor, target: Tensor, rho: float) -> Callable[..., Any]:
    """ℓ(z, y) + ρ/2 ‖z − centre‖² and its gradient, for one sample (1, c), as scipy calls it."""

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(z)[None]
        value = loss.value(point, target).sum() + rho / 2 * (point - centre).square().sum()
        slope = loss.gradient(point, target) + rho * (point - centre)
        return float(value), slope[0].numpy()

    return objective


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [1e-2, 1.0, 50.0])
def test_proximal_agrees_with_scipy(loss: str, rho: float) -> None:
    centre, targets = batch(loss, rows=8, scale=5.0)
    minimiser = LOSSES[loss].proximal(centre, targets, rho)
    options = {"ftol": 1e-15, "gtol": 1e-11, "maxiter": 500}
    for j in range(len(centre)):
        objective = proximal_objective(LOSSES[loss], centre[j : j + 1], targets[j : j + 1], rho)
        start = np.zeros(centre.shape[1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        np.testing.assert_allclose(minimiser[j].numpy(), found.x, atol=2e-4, rtol=1e-5)
        assert objective(minimiser[j].numpy())[0] <= found.fun + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [1e-3, 0.5, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_proximal_meets_its_condition_of_optimality(loss: str, rho: float, scale: float) -> None:
    centre, targets = batch(loss, scale=scale)
    z = LOSSES[loss].proximal(centre, targets, rho)
    slope = LOSSES[loss].gradient(z, targets) + rho * (z - centre)
    assert slope.abs().max() < 1e-13 * max(scale, 1 / rho) * max(1.0, rho)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_that_of_the_value(loss: str) -> None:
    logits, targets = batch(loss)
    logits.requires_grad_()
    (expected,) = torch.autograd.grad(LOSSES[loss].value(logits, targets).sum(), logits)
    torch.testing.assert_close(LOSSES[loss].gradient(logits.detach(), targets), expected)


def test_values_are_the_ones_torch_computes() -> None:
    logits, targets = batch("cross_entropy")
    expected = functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(CrossEntropy().value(logits, targets), expected)
    logits, targets = batch("logistic")
    expected = functional.binary_cross_entropy_with_logits(logits[:, 0], targets.double(), reduction="none")
    torch.testing.assert_close(Logistic().value(logits, targets), expected)
    logits, points = batch("squared")
    expected = functional.mse_loss(logits, points, reduction="none").sum(dim=1) / 2
    torch.testing.assert_close(Squared().value(logits, points), expected)


def test_class_numbers_and_their_one_hot_rows_are_the_same_targets() -> None:
    logits, targets = batch("cross_entropy")
    rows = functional.one_hot(targets, 10).double()
    loss = CrossEntropy()
    torch.testing.assert_close(loss.value(logits, targets), loss.value(logits, rows))
    torch.testing.assert_close(loss.proximal(logits, targets, 0.5), loss.proximal(logits, rows, 0.5))


@pytest.mark.parametrize("rho", [1e-2, 1.0, 50.0])
def test_soft_targets_agree_with_scipy_and_meet_their_condition_of_optimality(rho: float) -> None:
    """∇ = softmax(z) − q + ρ (z − c) vanishes, and L-BFGS-B ends at the same z."""
    source, loss = torch.Generator().manual_seed(3), CrossEntropy()
    centre = torch.randn(8, 10, dtype=torch.float64, generator=source) * 5
    q = (torch.randn(8, 10, dtype=torch.float64, generator=source) * 2).softmax(dim=1)
    z = loss.proximal(centre, q, rho)
    assert (z.softmax(dim=1) - q + rho * (z - centre)).abs().max() < 1e-12 * max(1.0, rho, 1 / rho)
    for j in range(len(centre)):
        objective = proximal_objective(loss, centre[j : j + 1], q[j : j + 1], rho)
        options = {"ftol": 1e-15, "gtol": 1e-11, "maxiter": 500}
        found = minimize(objective, np.zeros(10), jac=True, method="L-BFGS-B", options=options)
        np.testing.assert_allclose(z[j].numpy(), found.x, atol=2e-4, rtol=1e-5)
        assert objective(z[j].numpy())[0] <= found.fun + 1e-9


def test_two_classes_are_one_logit() -> None:
    """Softmax over (z, 0) is the sigmoid of z, and ρ = 2 ρ' splits the penalty over two logits."""
    centre, targets = batch("logistic")
    single = Logistic().proximal(centre, targets, 0.7)
    pair = torch.cat((torch.zeros_like(centre), centre), dim=1)
    double = CrossEntropy().proximal(pair, targets, 1.4)
    torch.testing.assert_close(double[:, 1] - double[:, 0], single[:, 0])


def test_targets_of_one_column_may_be_flat() -> None:
    for name in ("logistic", "squared"):
        centre, _ = batch("logistic")
        targets = torch.rand(len(centre), dtype=torch.float64)
        flat = LOSSES[name].proximal(centre, targets, 1.0)
        torch.testing.assert_close(flat, LOSSES[name].proximal(centre, targets[:, None], 1.0))


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        ("cross_entropy", torch.tensor([0, 3])),
        ("cross_entropy", torch.tensor([0, -1])),
        ("cross_entropy", torch.tensor([0.0, 1.0])),
        ("cross_entropy", torch.tensor([0, 1, 2])),
        ("logistic", torch.tensor([0, 1])),
        ("squared", torch.tensor([0.0, 1.0])),
    ],
)
def test_targets_that_do_not_fit_are_refused_with_a_hint(loss: str, targets: Tensor) -> None:
    logits = torch.zeros(2, 3)
    for call in (LOSSES[loss].value, LOSSES[loss].gradient):
        with pytest.raises(InputError) as refusal:
            call(logits, targets)
        assert refusal.value.hint


@given(
    seed=st.integers(0, 2**31),
    classes=st.integers(2, 20),
    rho=st.floats(1e-3, 1e3),
    scale=st.floats(0.0, 1e3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_proximal_holds_everywhere(seed: int, classes: int, rho: float, scale: float, dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(seed)
    centre = (2 * torch.rand(16, classes, dtype=dtype, generator=source) - 1) * scale
    targets = torch.randint(0, classes, (16,), generator=source)
    loss = CrossEntropy()
    z = loss.proximal(centre, targets, rho)

    assert z.isfinite().all()
    # Steps away from the centre lie between -1/ρ and 1/ρ, up for the target and down for the rest.
    move, slack = rho * (z - centre), 8 * torch.finfo(dtype).eps * max(1.0, rho * scale)
    target = functional.one_hot(targets, classes).bool()
    assert (move[target] >= -slack).all()
    assert (move[target] <= 1 + slack).all()
    assert (move[~target] <= slack).all()
    assert (move[~target] >= -1 - slack).all()
    # Rounding z by one unit in the last place moves the gradient by so much.
    rounding = torch.finfo(dtype).eps * (scale + 1 / rho + 1)
    assert (loss.gradient(z, targets) + move).abs().max() <= 16 * rounding * (1 + rho)
    # Renaming the classes renames the answer.
    order = torch.randperm(classes, generator=source)
    renamed = loss.proximal(centre[:, order], order.argsort()[targets], rho)
    torch.testing.assert_close(renamed, z[:, order], rtol=1e-5, atol=16 * rounding)
