"""Noise of a sum of discrete Gaussians: exact convolutions, dp-accounting and a Monte-Carlo estimate of the loss."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from colonnade.common.privacy.accounting.accountant import epsilon, gaussian_delta
from colonnade.common.privacy.sum_noise import LEAST, SMOOTHING, discrete_gaussian, excess, promised, share


def single(sigma: float, reach: int) -> np.ndarray:
    """Probabilities of a discrete Gaussian from -reach to reach."""
    x = np.arange(-reach, reach + 1, dtype=np.longdouble)
    weight = np.exp(-(x**2) / (2 * np.longdouble(sigma) ** 2))
    return weight / weight.sum()


def summed(sigma: float, parties: int, reach: int) -> np.ndarray:
    """Probabilities of the sum of so many, by convolution."""
    total = one = single(sigma, reach)
    for _ in range(parties - 1):
        total = np.convolve(total, one)
    return total


def delta_of(total: np.ndarray, shift: int, epsilon: float) -> float:
    """The smallest delta at an epsilon for two whole numbers `shift` apart, by its definition."""
    return float(np.maximum(total[shift:] - math.exp(epsilon) * total[:-shift], 0).sum() + total[:shift].sum())


@given(st.floats(1, 1e7), st.integers(1, 1000))
def test_a_share_is_the_smallest_whose_sum_keeps_the_promise(deviation: float, parties: int) -> None:
    sigma, wanted = share(deviation, parties), Fraction(deviation) ** 2 + SMOOTHING
    assert parties * sigma**2 >= wanted > parties * (sigma - 1) ** 2
    assert promised(sigma, parties) >= deviation * (1 - 1e-12)


@pytest.mark.parametrize("parties", [2, 3, 7])
def test_a_sums_probabilities_are_a_discrete_gaussians_but_for_the_ratio(parties: int) -> None:
    """Where it can be seen: of shares of half a step. The ratio is not 1, and within e^tau."""
    sigma, reach = 0.5, 40
    total = summed(sigma, parties, reach)
    near = single(sigma * math.sqrt(parties), parties * reach)
    inner = abs(np.arange(-parties * reach, parties * reach + 1)) < 12
    ratio = float(np.abs(np.log(total[inner] / near[inner])).max())
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, parties))
    assert 1e-3 < ratio <= tau


def test_rounding_a_normal_makes_a_discrete_gaussian_but_for_the_ratio() -> None:
    """By quadrature, with so little rounding that the ratio can be seen: the second step of the proof."""
    rest, smooth = 1.5, 0.15
    e = sum(2 * math.exp(-2 * math.pi**2 * smooth * k**2) for k in range(1, 6))
    whole = np.arange(-30, 31)

    def chance(y: int) -> float:
        def inside(z: float) -> float:
            normaliser = np.exp(-((whole - z) ** 2) / (2 * smooth)).sum()
            density = math.exp(-(z**2) / (2 * rest)) / math.sqrt(2 * math.pi * rest)
            return float(density * math.exp(-((y - z) ** 2) / (2 * smooth)) / normaliser)

        return quad(inside, -12, 12, limit=400)[0]

    exact = single(math.sqrt(rest + smooth), 30)
    ratios = [math.log(chance(y) / float(exact[30 + y])) for y in range(-4, 5)]
    assert 1e-4 < max(map(abs, ratios)) <= math.log((1 + e) / (1 - e))


def test_the_ratio_of_all_that_a_run_sends_is_nothing() -> None:
    assert max(excess(LEAST, parties) for parties in (1, 2, 14, 1000)) * 2**60 < 1e-50
    assert excess(1, 3) > 1e-4  # and would be something for small ones


@pytest.mark.parametrize(("sigma", "parties", "shift"), [(8, 1, 8), (8, 2, 9), (10, 5, 20), (6, 14, 30), (20, 9, 3)])
def test_delta_is_at_most_the_accounted_and_near_it(sigma: int, parties: int, shift: int) -> None:
    total = summed(sigma, parties, 20 * sigma)
    for epsilon_ in (0.0, 0.3, 1.0, 2.0, 4.0):
        bound = gaussian_delta(promised(sigma, parties) / shift, epsilon_)
        truth = delta_of(total, shift, epsilon_)
        assert truth <= bound * (1 + 1e-9) + 1e-15
        without = gaussian_delta(math.sqrt(parties) * sigma / shift, epsilon_)  # nothing given up
        assert truth == pytest.approx(without, rel=0.05, abs=1e-15)


@pytest.mark.parametrize(("parties", "shift", "releases"), [(4, 40, 1), (4, 40, 30), (10, 100, 12)])
def test_another_library_agrees_on_all_releases_together(parties: int, shift: int, releases: int) -> None:
    """dp-accounting composes the losses of the discrete Gaussian, to which the sum of shares of 64 steps is equal."""
    sigma = 64
    pld = from_discrete_gaussian_mechanism(
        math.sqrt(parties) * sigma, sensitivity=shift, value_discretization_interval=1e-4
    )
    theirs = pld.self_compose(releases).get_epsilon_for_delta(1e-5)
    ours = epsilon(releases, promised(sigma, parties) / shift, 1e-5, "row")
    assert ours == pytest.approx(theirs, rel=2e-3)


def test_a_monte_carlo_estimate_of_the_loss_agrees() -> None:
    """Sums of drawn shares; the loss of each from the convolution; delta as the mean of 1 - e^(epsilon - loss)."""
    sigma, parties, shift, bits = 12, 5, 20, random.Random(5).randbytes
    total, reach = summed(sigma, parties, 15 * sigma), parties * 15 * sigma
    sums = sum(discrete_gaussian(300_000, sigma, bits) for _ in range(parties))
    loss = np.log(total[reach + sums] / total[reach + sums + shift]).astype(float)  # one neighbour is `shift` lower
    for epsilon_ in (0.5, 1.0, 2.0):
        gains = np.maximum(0, -np.expm1(epsilon_ - loss))
        slack = 4 * gains.std() / math.sqrt(len(gains))
        assert abs(gains.mean() - delta_of(total, shift, epsilon_)) < slack
        assert gains.mean() - slack < gaussian_delta(promised(sigma, parties) / shift, epsilon_) < 1.1 * gains.mean()
