"""Bounds from guesses: against their formula computed otherwise, and on mechanisms of known epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade_lab.attacks.audit.canaries import Audited, Guesses, audit, least_of_any, least_of_gaussian, p_value

pytestmark = pytest.mark.slow


@given(st.integers(1, 60), st.data(), st.floats(0.0, 6.0), st.sampled_from([0.0, 1e-6, 1e-3, 0.1]))
def test_the_p_value_is_the_papers(canaries: int, data: st.DataObject, epsilon: float, delta: float) -> None:
    """Theorem 5.2 term by term, with probabilities as sums of binomial terms."""
    made = data.draw(st.integers(1, canaries))
    right = data.draw(st.integers(0, made))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(made, k) * q**k * (1 - q) ** (made - k) for k in range(made + 1)]
    alpha = max((2 / i * sum(mass[right - i : right]) for i in range(1, right + 1)), default=0.0)
    expected = min(sum(mass[right:]) + alpha * canaries * delta, 1.0)
    assert p_value(Guesses(canaries, made, right), epsilon, delta) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_randomised_response_is_bounded_from_below_and_closely(epsilon: float) -> None:
    """Every coin told truly with probability e^epsilon / (1 + e^epsilon): exactly epsilon-private."""
    draws, truth = np.random.default_rng(1), math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [least_of_any(Guesses(10_000, 10_000, int(draws.binomial(10_000, truth))), 0.0) for _ in range(200)]
    assert sum(bound > epsilon for bound in bounds) <= 200 * 0.05 + 7  # 5 %, and two standard deviations
    assert np.median(bounds) > 0.9 * epsilon


def test_the_bound_is_where_the_p_value_is_small() -> None:
    guesses = Guesses(500, 100, 95)
    bound = least_of_any(guesses, 1e-5)
    assert p_value(guesses, bound, 1e-5) == pytest.approx(0.05, abs=1e-3)
    assert binom.sf(94, 100, 1 / (1 + math.exp(-bound))) < 0.05


def test_guesses_by_chance_show_nothing_and_a_larger_delta_explains_more() -> None:
    assert least_of_any(Guesses(1000, 1000, 505), 0.0) == least_of_any(Guesses(1000, 10, 0), 1e-5) == 0
    small, large = (least_of_any(Guesses(1000, 100, 99), delta) for delta in (1e-6, 1e-2))
    assert large < small


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_bound_for_gaussian_noise_is_close(mu: float) -> None:
    right = 1 - math.erfc(mu / 2 / math.sqrt(2)) / 2
    exact = gaussian_epsilon(1 / mu, 1e-6)
    bounds = [
        least_of_gaussian(Guesses(40_000, 40_000, int(np.random.default_rng(seed).binomial(40_000, right))), 1e-6)
        for seed in range(100)
    ]
    assert sum(bound > exact for bound in bounds) <= 10
    assert np.median(bounds) > 0.9 * exact
    assert least_of_gaussian(Guesses(1000, 1000, 490), 1e-6) == 0
    with pytest.raises(ValueError, match="every canary"):
        least_of_gaussian(Guesses(1000, 999, 900), 1e-6)


def gaussian(mu: float, claimed: float, seed: int) -> Audited:
    def scores(coins: Tensor) -> Tensor:
        return 7 + coins.double() * mu + torch.randn(len(coins), generator=generator("noise", seed))

    return Audited("gaussian", claimed, 1e-6, scores, gaussian=True)


def test_an_audit_stays_below_a_right_claim_and_exceeds_that_of_half_the_noise() -> None:
    """Also without the knowledge that the noise is normal."""
    claim = gaussian_epsilon(2.0, 1e-6)
    right = [audit(gaussian(0.5, claim, seed), 20_000, seed, 0.99) for seed in range(20)]
    assert not any(result.refuted for result in right)
    assert all((result.least_gaussian or 0) > 0.7 * claim for result in right)
    half = [audit(gaussian(1.0, claim, seed), 100_000, seed, 0.99) for seed in range(5)]
    assert all(result.least > claim and (result.least_gaussian or 0) > 1.8 * claim for result in half)


def test_coins_that_decide_nothing_are_not_guessed() -> None:
    result = audit(gaussian(0.0, 0.1, 0), 20_000, 0, 0.99)
    assert result.least == 0 and not result.refuted and abs(result.accuracy - 0.5) < 0.02


def test_scores_that_are_infinite_decide() -> None:
    """A mechanism that shows one canary in 500 has no epsilon, and delta .002."""

    def scores(coins: Tensor) -> Tensor:
        found = torch.zeros(len(coins), dtype=torch.float64)
        found[::500] = torch.where(coins[::500], math.inf, -math.inf).double()
        return found

    shown = audit(Audited("shows some", 1.0, 0.0, scores), 100_000, 0, 0.99)
    assert shown.refuted and shown.least > 2
    assert not audit(Audited("shows some", 1.0, 0.01, scores), 100_000, 0, 0.99).refuted


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(InputError, match="99 canaries: an audit needs at least 100"):
        audit(gaussian(1.0, 1.0, 0), 99, 0)
