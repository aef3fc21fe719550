"""One Gaussian release against another library, against Monte Carlo, and against the classical bound."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from colonnade.common.privacy.accounting.accountant import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)

SETTINGS = [(0.05, 1e-2), (0.2, 1e-2), (0.5, 1e-5), (1.0, 1e-5), (4.0, 1e-8), (30.0, 1e-6)]


@pytest.mark.parametrize(("sigma", "delta"), SETTINGS)
def test_it_equals_another_librarys_result(sigma: float, delta: float) -> None:
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # takes a second

    loss = GaussianPrivacyLoss(standard_deviation=sigma)
    epsilon = gaussian_epsilon(sigma, delta)
    assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)
    assert gaussian_sigma(epsilon, delta) == pytest.approx(sigma, rel=1e-6) if epsilon else True


def test_delta_is_the_hockey_stick_of_the_two_densities() -> None:
    """Integrates over a grid, for noise 1 and outputs 0 and 1 / sigma."""
    grid = torch.linspace(-40, 40, 400_001, dtype=torch.float64).numpy()
    for sigma, epsilon in [(0.5, 1.0), (1.0, 0.1), (2.0, 0.0)]:
        p, q = norm.pdf(grid, 1 / sigma), norm.pdf(grid)
        excess = (p - math.exp(epsilon) * q).clip(min=0).sum() * (grid[1] - grid[0])
        assert gaussian_delta(sigma, epsilon) == pytest.approx(excess, rel=1e-4)


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.3))
def test_sigma_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    assert gaussian_delta(sigma, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_delta(sigma * 0.999, epsilon) > delta * (1 - 1e-9)
    assert gaussian_epsilon(sigma, delta) <= epsilon * (1 + 1e-6) + 1e-9


@given(st.floats(0.01, 0.99), st.floats(1e-10, 0.1))
def test_the_classical_bound_is_never_tighter(epsilon: float, delta: float) -> None:
    assert math.sqrt(2 * math.log(1.25 / delta)) / epsilon >= gaussian_sigma(epsilon, delta)


def test_lemma_3_3_upside_down_protects_nothing() -> None:
    """sigma >= epsilon / c, as printed: less noise for a smaller epsilon."""
    epsilon, delta = 0.5, 1e-5
    c = math.sqrt(2 * math.log(1.25 / delta))
    assert gaussian_epsilon(epsilon / c, delta) > 50  # value of the printed bound


def test_extremes_neither_overflow_nor_hang() -> None:
    assert gaussian_epsilon(1e-3, 1e-5) == pytest.approx(1 / (2 * 1e-6) + 4.2649e3, rel=1e-3)
    assert gaussian_epsilon(1e6, 1e-5) == 0.0
    assert gaussian_delta(1e-3, 0.0) == pytest.approx(1.0)
