"""Intervals against their definition, bounds on epsilon against mechanisms of known epsilon, areas under the curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.bounds import Counts, area, clopper_pearson, least_epsilon

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


def sample(number: int, rows: int = 150) -> tuple[Tensor, Tensor]:
    draws = generator("areas", number)
    labels = torch.randint(0, 3, (rows,), generator=draws)
    truth = torch.eye(3, dtype=torch.bool)[labels]
    return truth * 0.8 + torch.randn(rows, 1, generator=draws) + torch.randn(rows, 3, generator=draws), truth


@pytest.mark.parametrize("ties", [False, True])
def test_an_area_is_the_mean_over_classes(ties: bool) -> None:
    scores, truth = sample(0)
    scores = scores.round() if ties else scores
    each = [roc_auc_score(truth[:, name], scores[:, name]) for name in range(3)]
    assert area(scores, truth).auc == pytest.approx(sum(each) / 3, abs=1e-12)


def test_an_interval_has_the_spread_of_many_samples() -> None:
    """Classes share a row's noise here, so that intervals of independent areas would be too narrow."""
    found = [area(*sample(number)) for number in range(400)]
    areas = torch.tensor([one.auc for one in found])
    covered = [one.interval[0] <= areas.mean() <= one.interval[1] for one in found]
    assert 0.92 < sum(covered) / 400 < 0.98
    assert sum(one.interval[1] - one.interval[0] for one in found) / 400 == pytest.approx(
        2 * 1.96 * areas.std().item(), rel=0.1
    )


def test_classes_without_rows_are_left_out() -> None:
    scores, truth = sample(0)
    both = torch.stack([truth[:, 0], torch.zeros(len(truth), dtype=torch.bool)], dim=1)
    assert area(scores[:, :2], both) == area(scores[:, :1], truth[:, :1])
    assert area(scores[:, :1], both[:, 1:]).interval == (0.0, 1.0)
