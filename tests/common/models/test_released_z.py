"""VIMADMM's z where a noisy release takes the place of the label: its objective, and the minimiser."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from torch import Tensor

from colonnade.common.models.admm import minimise_released_z, minimise_z, update_dual
from colonnade.common.models.losses import CrossEntropy
from colonnade.common.privacy.labels import posterior

B, C = 24, 6


class Point:
    """Variables of a batch, and the log-likelihood of a release for every class."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        draw = torch.Generator().manual_seed(seed)
        normal = partial(torch.randn, B, C, generator=draw, dtype=dtype)
        self.dual, self.total, self.evidence = 0.4 * normal(), 2 * normal(), 3 * normal()

    def z(self, rho: float) -> Tensor:
        def targets(logits: Tensor) -> Tensor:
            return posterior(logits, self.evidence)

        return minimise_released_z(targets, self.dual, self.total, rho, CrossEntropy())

    def objective(self, z: Tensor, rho: float) -> Tensor:
        """Of every row, (rows,)."""
        loss = -((z.softmax(-1) * self.evidence.exp()).sum(-1)).log()
        return loss - (self.dual * z).sum(-1) + rho / 2 * (self.total - z).square().sum(-1)


def lowest_curvature(z: Tensor, evidence: Tensor, rho: float) -> float:
    """The smallest eigenvalue of the objective's Hessian in a row, by autograd."""

    def loss(z: Tensor) -> Tensor:
        return -((z.softmax(-1) * evidence.exp()).sum(-1)).log() + rho / 2 * z.square().sum()

    return float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, z)).min())


@pytest.mark.parametrize("rho", [0.55, 1.0, 5.0])
def test_it_is_where_a_generic_minimiser_ends(rho: float) -> None:
    at, beginnings = Point(), np.random.default_rng(0)
    found = at.z(rho).numpy()
    for row in range(0, B, 4):
        dual, total, evidence = (values[row].numpy() for values in (at.dual, at.total, at.evidence))

        def objective(z: np.ndarray, dual=dual, total=total, evidence=evidence) -> float:
            loss = logsumexp(z) - logsumexp(z + evidence)
            return float(loss - dual @ z + rho / 2 * ((total - z) ** 2).sum())

        start = 5 * beginnings.standard_normal(C)  # of no importance: the objective is strictly convex
        theirs = minimize(objective, start, method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(found[row], theirs, atol=2e-4)


def test_above_one_half_the_objective_is_convex_everywhere_and_not_below() -> None:
    at = Point(1)
    assert all(lowest_curvature(z, e, 0.501) > 0 for z, e in zip(at.total, at.evidence, strict=True))
    # A posterior halfway between two classes, of a prior that is sure of the third:
    prior, evidence = torch.tensor([0.0, 0.0, 20.0], dtype=torch.float64), torch.tensor([40.0, 40.0, 0.0]).double()
    assert 0 < lowest_curvature(prior, evidence, 0.501) < 0.002
    assert lowest_curvature(prior, evidence, 0.499) < 0
    assert lowest_curvature(prior, torch.zeros(3).double(), 0.499) == pytest.approx(0.499)  # a release without a word


@pytest.mark.parametrize("rho", [0.1, 0.5, 1.0])
def test_it_is_never_above_the_z_of_the_posterior_and_stationary(rho: float) -> None:
    at = Point(2)
    found = at.z(rho)
    once = minimise_z(posterior(at.total, at.evidence), at.dual, at.total, rho, CrossEntropy())
    assert (at.objective(found, rho) <= at.objective(once, rho) + 1e-9).all()
    assert (at.objective(found, rho) < at.objective(once, rho) - 1e-3).any()
    leaf = found.clone().requires_grad_()
    (slope,) = torch.autograd.grad(at.objective(leaf, rho).sum(), leaf)
    assert slope.abs().max() < 1e-3 if rho >= 0.5 else slope.abs().mean() < 1e-2


def test_the_dual_becomes_the_gradient_of_the_releases_loss() -> None:
    at = Point(3)
    z = at.z(1.0).requires_grad_()
    loss = -((z.softmax(-1) * at.evidence.exp()).sum(-1)).log()
    (expected,) = torch.autograd.grad(loss.sum(), z)
    dual = update_dual(at.dual, at.total, z.detach(), 1.0)
    torch.testing.assert_close(dual, expected, atol=1e-4, rtol=0)


def test_a_release_that_says_everything_is_the_label_itself() -> None:
    at = Point(4)
    labels = torch.arange(B) % C
    at.evidence = 500.0 * torch.nn.functional.one_hot(labels, C).double()
    torch.testing.assert_close(at.z(1.0), minimise_z(labels, at.dual, at.total, 1.0, CrossEntropy()))


def test_a_row_that_is_not_a_number_spoils_no_other_row() -> None:
    at = Point(5, torch.float32)
    clean = at.z(1.0)
    at.total[2, 1] = float("nan")
    spoiled, rest = at.z(1.0), [row for row in range(B) if row != 2]
    assert spoiled[2].isnan().all()
    torch.testing.assert_close(spoiled[rest], clean[rest], atol=1e-4, rtol=0)
