"""VIMADMM's steps against autograd on the augmented Lagrangian of Eq. 4, written out in full."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.models.admm import head_gradients, local_gradient, minimise_z, residual, update_dual
from colonnade.common.models.losses import LOSSES, CrossEntropy

B, M, D, C = 7, 3, 5, 4
RHO = 0.7


class Point:
    """One point of the algorithm, in float64: h, W, z, λ, y and the sums that the steps need."""

    def __init__(self, seed: int = 0) -> None:
        source = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=source)

        self.embeddings, self.heads = normal(M, B, D), normal(M, D, C)
        self.auxiliary, self.dual = normal(B, C), normal(B, C)
        self.targets = torch.randint(0, C, (B,), generator=source)
        self.parts = self.embeddings @ self.heads
        self.total = self.parts.sum(dim=0)


def lagrangian(embeddings: Tensor, heads: Tensor, auxiliary: Tensor, dual: Tensor, targets: Tensor) -> Tensor:
    """Eq. 4 on a batch, with R = ½ ‖·‖² at β = 0.01 for the heads."""
    total = torch.einsum("kjd,kdc->jc", embeddings, heads)
    loss = torch.nn.functional.cross_entropy(auxiliary, targets)
    linear = (dual * (total - auxiliary)).sum() / len(targets)
    quadratic = RHO / 2 * (total - auxiliary).square().sum() / len(targets)
    return loss + linear + quadratic + 0.01 / 2 * heads.square().sum()


def slope(at: Point, of: str, **changed: Tensor) -> Tensor:
    """The Lagrangian's gradient with respect to one of its variables, by autograd."""
    names = ("embeddings", "heads", "auxiliary", "dual")
    values = {name: changed.get(name, getattr(at, name)).clone() for name in names}
    values[of].requires_grad_()
    return torch.autograd.grad(lagrangian(**values, targets=at.targets), values[of])[0]


def test_minimised_z_is_where_the_lagrangian_is_flat() -> None:
    at = Point()
    z = minimise_z(at.targets, at.dual, at.total, RHO, CrossEntropy())
    assert slope(at, "auxiliary", auxiliary=z).abs().max() < 1e-14
    assert slope(at, "auxiliary").abs().max() > 1e-2


def test_dual_climbs_the_lagrangian_and_becomes_the_gradient_of_the_loss() -> None:
    at = Point()
    z = minimise_z(at.targets, at.dual, at.total, RHO, CrossEntropy())
    dual = update_dual(at.dual, at.total, z, RHO)
    torch.testing.assert_close(dual - at.dual, RHO * B * slope(at, "dual", auxiliary=z))
    torch.testing.assert_close(dual, CrossEntropy().gradient(z, at.targets))


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.9])
def test_a_damped_dual_is_a_running_mean_of_the_losss_gradients(gamma: float) -> None:
    at = Point()
    z = minimise_z(at.targets, at.dual, at.total, RHO, CrossEntropy())
    dual = update_dual(at.dual, at.total, z, RHO, gamma)
    torch.testing.assert_close(dual - at.dual, gamma * RHO * B * slope(at, "dual", auxiliary=z))
    torch.testing.assert_close(dual, (1 - gamma) * at.dual + gamma * CrossEntropy().gradient(z, at.targets))


def test_head_gradients_are_those_of_the_lagrangian_all_at_the_old_sum() -> None:
    at = Point()
    signal = local_gradient(at.total, at.dual, at.auxiliary, RHO)
    gradients = head_gradients(at.embeddings, at.heads, signal, weight_decay=0.01)
    torch.testing.assert_close(gradients, slope(at, "heads"))
    one = head_gradients(at.embeddings[1], at.heads[1], signal, weight_decay=0.01)
    torch.testing.assert_close(one, gradients[1])


def test_local_gradient_is_that_of_the_lagrangian_at_the_partys_logits() -> None:
    at = Point()
    for k in range(M):
        left = residual(at.auxiliary, at.total, at.parts[k])
        gradient = local_gradient(at.parts[k], at.dual, left, RHO) @ at.heads[k].T
        torch.testing.assert_close(gradient, slope(at, "embeddings")[k])


def test_the_residual_is_that_of_the_other_parties() -> None:
    at = Point()
    expected = at.auxiliary - (at.parts[0] + at.parts[2])
    torch.testing.assert_close(residual(at.auxiliary, at.total, at.parts[1]), expected)
    torch.testing.assert_close(residual(at.auxiliary, at.total, at.parts)[1], expected)


def test_local_gradient_is_that_of_equation_9_away_from_the_old_logits() -> None:
    at = Point()
    left = residual(at.auxiliary, at.total, at.parts[0])
    logits = (at.parts[0] + 1.0).requires_grad_()
    equation_9 = ((at.dual * logits).sum() + RHO / 2 * (left - logits).square().sum()) / B
    (expected,) = torch.autograd.grad(equation_9, logits)
    torch.testing.assert_close(local_gradient(logits.detach(), at.dual, left, RHO), expected)


def solved_by_lbfgs(total: np.ndarray, dual: np.ndarray, label: int) -> np.ndarray:
    """Eq. 5 of one sample as the paper solves it."""

    def equation_5(z: np.ndarray) -> float:
        loss = np.log(np.exp(z).sum()) - z[label]
        return float(loss - dual @ z + RHO / 2 * ((total - z) ** 2).sum())

    return minimize(equation_5, np.zeros(C), method="L-BFGS-B", options={"ftol": 1e-14}).x


def test_minimised_z_agrees_with_the_papers_own_solver() -> None:
    at = Point()
    z = minimise_z(at.targets, at.dual, at.total, RHO, CrossEntropy())
    for j in range(B):
        expected = solved_by_lbfgs(at.total[j].numpy(), at.dual[j].numpy(), int(at.targets[j]))
        np.testing.assert_allclose(z[j].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan")])
def test_rho_must_be_positive(loss: str, rho: float) -> None:
    row = torch.zeros(1, 1)
    with pytest.raises(InputError, match="rho is") as refusal:
        minimise_z(row[:, 0].long(), row, row, rho, LOSSES[loss])
    assert refusal.value.hint


def test_a_row_that_is_not_a_number_spoils_no_other_row() -> None:
    at = Point()
    total = at.total.clone()
    total[2, 1] = float("nan")
    z = minimise_z(at.targets, at.dual, total, RHO, CrossEntropy())
    clean = minimise_z(at.targets, at.dual, at.total, RHO, CrossEntropy())
    assert z[2].isnan().all()
    rest = [j for j in range(B) if j != 2]
    torch.testing.assert_close(z[rest], clean[rest])
