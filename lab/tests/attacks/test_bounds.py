"""Bounds on epsilon against mechanisms of known epsilon, and intervals against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from colonnade_lab.attacks.bounds import Counts, clopper_pearson, least_epsilon

pytestmark = pytest.mark.slow


@given(st.integers(1, 400), st.data())
def test_an_interval_ends_where_the_binomials_tails_are_small(trials: int, data: st.DataObject) -> None:
    """By the definition: at either end, the observed or a more extreme count has probability 2.5 %."""
    successes = data.draw(st.integers(0, trials))
    low, high = clopper_pearson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    if successes:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(0.025, rel=1e-6)
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(0.025, rel=1e-6)


def randomised_response(epsilon: float, trials: int, seed: int) -> Counts:
    """Answers truly with probability e^epsilon / (1 + e^epsilon): exactly epsilon-private."""
    draws, truth = np.random.default_rng(seed), 1 / (1 + math.exp(-epsilon))
    return Counts(int(draws.binomial(trials, truth)), trials, int(draws.binomial(trials, 1 - truth)), trials)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_randomised_response_is_bounded_from_below_and_closely(epsilon: float) -> None:
    bounds = [least_epsilon(randomised_response(epsilon, 20_000, seed), 0.0) for seed in range(200)]
    assert sum(bound > epsilon for bound in bounds) <= 200 * 0.1  # two intervals of 95 % may both fail
    assert np.median(bounds) > 0.85 * epsilon


def test_more_trials_come_closer() -> None:
    small, large = (least_epsilon(randomised_response(2.0, trials, 3), 0.0) for trials in (100, 100_000))
    assert small < large < 2.0 and large > 1.9


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.05])
def test_a_gaussian_mechanism_keeps_its_epsilon_at_every_delta(delta: float) -> None:
    """sigma = 1, sensitivity 1: the rates of the best test, and the exact epsilon (Balle and Wang 2018, Theorem 8)."""

    def spent(epsilon: float) -> float:
        return float(norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon))

    exact = min((e for e in np.linspace(0, 8, 8001) if spent(e) <= max(delta, 1e-12)), default=8.0)
    trials = 10**6
    for threshold in (-1.0, 0.5, 2.0):
        hits, alarms = (round(trials * float(norm.sf(threshold - mean))) for mean in (1.0, 0.0))
        assert 0 <= least_epsilon(Counts(hits, trials, alarms, trials), delta) <= exact


def test_no_bound_is_claimed_if_nothing_is_distinguished() -> None:
    assert least_epsilon(Counts(50, 100, 50, 100), 0.0) == 0
    assert least_epsilon(Counts(0, 100, 0, 100), 0.0) == least_epsilon(Counts(100, 100, 100, 100), 0.0) == 0
    assert least_epsilon(Counts(20, 100, 80, 100), 0.0) == 0  # worse than chance: the other way round is another test
    assert least_epsilon(Counts(100, 100, 0, 100), 1.0) == 0


def test_both_sides_count() -> None:
    """No missed members count as much as no false positives."""
    assert least_epsilon(Counts(100, 100, 60, 100), 0.0) == pytest.approx(least_epsilon(Counts(40, 100, 0, 100), 0.0))
    assert Counts(90, 100, 30, 100).accuracy == pytest.approx(0.8)
