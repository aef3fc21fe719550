"""DP-SGD over secretly drawn rows: dp-accounting, a Monte-Carlo estimate of the loss, and the proof's inequality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.privacy.accounting.accountant import Event, gaussian_epsilon, least_noise, most_releases
from colonnade.common.privacy.accounting.accountant import epsilon as announced
from colonnade.common.privacy.accounting.plan import Span
from colonnade.common.privacy.accounting.sampled import (
    SampledGaussian,
    find_noise,
)
from colonnade.common.privacy.rows import RowPlan


def other_library(rate: float, sigma: float, steps: int, delta: float) -> float:
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
    return float(accountant.get_epsilon(delta))


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """The hockey-stick divergence of two densities on the same grid."""
    return float(np.maximum(p - order * q, 0).sum())


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [
        (4096 / 54000, 3.4, 100, 1e-5),
        (0.01, 0.8, 2000, 1e-8),
        (0.3, 2.0, 7, 1e-5),
        (1.0, 6.0, 10, 1e-8),
        (0.002, 0.5, 300, 1e-5),
    ],
)
def test_another_library_agrees(rate: float, sigma: float, steps: int, delta: float) -> None:
    ours, theirs = SampledGaussian(rate, sigma, steps).epsilon(delta), other_library(rate, sigma, steps, delta)
    assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)


@pytest.mark.parametrize(("sigma", "steps"), [(2.0, 1), (3.0, 5), (0.5, 1), (20.0, 400)])
def test_a_row_that_is_always_drawn_costs_as_much_as_without_sampling(sigma: float, steps: int) -> None:
    exact = gaussian_epsilon(sigma / 2 / math.sqrt(steps), 1e-6)
    assert exact == pytest.approx(announced(steps, sigma, 1e-6, "replace"))
    assert exact * (1 - 1e-7) <= SampledGaussian(1, sigma, steps).epsilon(1e-6) <= exact * (1 + 1e-4)


def test_a_monte_carlo_estimate_of_the_loss_agrees() -> None:
    """Whole runs are drawn; delta is the mean of max(0, 1 - e^(epsilon - loss)), without any grid."""
    rate, sigma, steps, runs = 0.2, 1.5, 12, 200_000
    made = np.random.default_rng(7)
    x = sigma * made.standard_normal((runs, steps)) + (made.random((runs, steps)) < rate)
    up, down = (np.exp((sign * 2 * x - 1) / (2 * sigma**2)) for sign in (1, -1))
    loss = np.log((1 - rate + rate * up) / (1 - rate + rate * down)).sum(axis=1)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        gains = np.maximum(0, -np.expm1(epsilon - loss))
        slack = 4 * gains.std() / math.sqrt(runs)
        assert abs(SampledGaussian(rate, sigma, steps).delta(epsilon) - gains.mean()) < slack


@pytest.mark.parametrize("angle", [0.0, 1.0, 3.0, math.pi])
@pytest.mark.parametrize("norms", [(1.0, 1.0), (0.3, 1.0), (1.0, 0.0)])
def test_no_pair_of_gradients_tells_more_than_opposite_ones(angle: float, norms: tuple[float, float]) -> None:
    """By summation over a plane: step 2 of the proof, of orders above and below 1."""
    rate, sigma = 0.3, 0.9
    axis = np.linspace(-7, 7, 281)
    one, two = np.meshgrid(axis, axis)

    def mixture(a: float, b: float) -> np.ndarray:
        moved = norm.pdf(one, a, sigma) * norm.pdf(two, b, sigma)
        return ((1 - rate) * norm.pdf(one, 0, sigma) * norm.pdf(two, 0, sigma) + rate * moved) * (
            axis[1] - axis[0]
        ) ** 2

    p = mixture(norms[0], 0)
    q = mixture(norms[1] * math.cos(angle), norms[1] * math.sin(angle))
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        bound = SampledGaussian(rate, sigma, 1).delta(epsilon)
        assert max(divergence(p, q, math.exp(epsilon)), divergence(q, p, math.exp(epsilon))) <= bound + 1e-4
        if angle == math.pi and norms == (1.0, 1.0):
            assert divergence(p, q, math.exp(epsilon)) == pytest.approx(bound, abs=2e-4)  # and is attained


def test_epsilon_and_delta_are_each_others_inverse_and_rise_with_steps_and_rate() -> None:
    found = [SampledGaussian(0.05, 1.2, steps).epsilon(1e-6) for steps in (1, 10, 100, 1000)]
    assert found == sorted(found) and found[-1] > 2 * found[0]
    assert SampledGaussian(0.05, 1.2, 100).delta(found[2]) == pytest.approx(1e-6, rel=1e-6)
    assert SampledGaussian(0.02, 1.2, 100).epsilon(1e-6) < found[2] < SampledGaussian(0.1, 1.2, 100).epsilon(1e-6)
    assert SampledGaussian(0.01, 5000, 1).epsilon(0.5) == 0


def test_the_noise_found_is_enough_and_a_thousandth_less_is_not() -> None:
    epsilon, rate, steps = 0.5, 4096 / 54000, 100
    sigma = find_noise(epsilon, 1e-6, rate, steps)
    assert SampledGaussian(rate, sigma, steps).epsilon(1e-6) <= epsilon
    assert SampledGaussian(rate, sigma / 1.002, steps).epsilon(1e-6) > epsilon


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"), [(0.0, 1.0, 1), (1.1, 1.0, 1), (0.1, 0.0, 1), (0.1, math.nan, 1), (0.1, 1.0, 0)]
)
def test_impossible_mechanisms_are_refused(rate: float, sigma: float, steps: int) -> None:
    with pytest.raises(InputError):
        SampledGaussian(rate, sigma, steps)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 1e-12), (1.0, 1.0)])
def test_impossible_guarantees_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError):
        find_noise(epsilon, delta, 0.1, 10)


@pytest.mark.parametrize(
    ("steps", "releases", "sigma"),
    [(SampledGaussian(0.01, 1.0, 2000), 4, 6.0), (SampledGaussian(0.05, 2.0, 300), 10, 8.0)],
)
def test_steps_and_releases_together_cost_what_another_library_says(
    steps: SampledGaussian, releases: int, sigma: float
) -> None:
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(PoissonSampledDpEvent(steps.rate, GaussianDpEvent(steps.noise_multiplier)), steps.steps)
    accountant.compose(PoissonSampledDpEvent(1.0, GaussianDpEvent(2 * sigma)), releases)  # 2 apart there, 1 here
    assert steps.joint_epsilon(releases, sigma, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_steps_or_releases_alone_are_what_they_were() -> None:
    steps = SampledGaussian(0.02, 1.5, 400)
    assert steps.joint_epsilon(0, 1.0, 1e-5) == pytest.approx(steps.epsilon(1e-5), abs=1e-5)
    nothing = SampledGaussian(1e-6, 1e4, 1)
    assert nothing.joint_epsilon(3, 1.7, 1e-5) == pytest.approx(announced(3, 1.7, 1e-5, "row"), abs=1e-4)


def test_noise_of_releases_is_found_beside_all_steps() -> None:
    steps = SampledGaussian(0.05, 2.0, 360)
    sigma = least_noise(Event(3, steps=steps), 8.0, 1e-4)
    assert sigma is not None and 7.9 < steps.joint_epsilon(3, sigma, 1e-4) <= 8.0
    event = Event(1, sigma, steps=steps)
    assert most_releases(event, 8.0, 1e-4) == 3 and most_releases(event, 0.5, 1e-4) == 0
    asked = {"clip": 1.0, "epsilon": 0.5, "delta": 1e-4, "steps": {"clip": 1.0, "rate": 0.05, "noise_multiplier": 2.0}}
    with pytest.raises(ConfigError, match="360 steps over secretly drawn rows alone come to") as refusal:
        RowPlan.of(AdaptivePrivacyConfig(mechanism="adaptive", **asked), Span(1000, 360, lambda _rounds: 3))
    assert refusal.value.hint


def banded_gain(rounds: int, bands: int) -> float:
    """Root mean square error of prefix sums, of independent noise over that of banded noise of equal sensitivity.

    C is the square root of the matrix of prefix sums, cut to its first bands: a row in one step of every `bands` moves
    it by the root of the number of epochs, as without C, times the norm of a column (Choquette-Choo et al. 2023,
    "(Amplified) banded matrix factorization", Theorem 2).
    """
    c = np.cumprod(np.concatenate([[1.0], (2 * np.arange(1, bands) - 1) / (2 * np.arange(1, bands))]))
    inverse = lfilter([1.0], c, np.concatenate([[1.0], np.zeros(rounds - 1)]))
    errors = np.cumsum(np.cumsum(inverse) ** 2)
    return math.sqrt((rounds + 1) / 2 / errors.mean() / (c**2).sum())


@pytest.mark.parametrize(
    ("batches", "epochs", "sigma", "table"),
    [
        (211, 12, 1.0, (56.2, 2.34, 13.4, 1.63)), (211, 12, 2.0, (21.8, 1.01, 28.9, 3.53)),
        (53, 5, 1.0, (30.6, 3.21, 6.50, 1.64)), (53, 5, 2.0, (12.6, 1.33, 14.5, 3.64)),
    ],
)  # fmt: skip
def test_the_pages_table_of_secret_sampling(
    batches: int, epochs: int, sigma: float, table: tuple[float, float, float, float]
) -> None:
    secret = SampledGaussian(1 / batches, sigma, batches * epochs).epsilon(1e-6)
    low, high = 0.1, 1e4
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if announced(epochs, middle, 1e-6, "replace") <= secret else (middle, high)
    plain, banded = announced(epochs, sigma, 1e-6, "replace"), high / banded_gain(batches * epochs, batches)
    assert (plain, secret, high, banded) == pytest.approx(table, rel=5e-3)
