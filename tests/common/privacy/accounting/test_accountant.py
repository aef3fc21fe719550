"""Epsilon against Theorem 2's closed form, against two other libraries, and against its own inverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.accountant import (
    SENSITIVITY,
    Event,
    epsilon,
    find_noise_multiplier,
    most_releases,
    stated_releases,
)
from tests.support.oracles import exact_epsilon, renyi_epsilon

SETTINGS = [(1, 20.0), (24, 20.0), (983, 20.0), (54, 30.0), (2213, 30.0), (97, 40.0), (10, 2.0), (1, 1.0), (3, 0.5)]

ACCOUNTING = st.sampled_from(["exact", "renyi"])


def theorem_2(releases: int, sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest value over alpha > 1, found by another way than a list of orders."""

    def bound(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        composed = releases * alpha * sensitivity**2 / (2 * sigma**2)
        return composed + math.log((alpha - 1) / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)

    return float(minimize_scalar(bound, bounds=(-8, 14), method="bounded", options={"xatol": 1e-10}).fun)


@pytest.mark.parametrize("delta", [1e-5, 1e-8])
@pytest.mark.parametrize(("releases", "sigma"), SETTINGS)
def test_it_is_theorem_2(releases: int, sigma: float, delta: float) -> None:
    exact = theorem_2(releases, sigma, delta)
    assert exact - 1e-9 <= epsilon(releases, sigma, delta, "participation", "renyi") <= exact * 1.003


@pytest.mark.parametrize("accounting", ["exact", "renyi"])
@pytest.mark.parametrize(("releases", "sigma"), SETTINGS)
def test_another_data_set_costs_as_half_the_noise(releases: int, sigma: float, accounting: str) -> None:
    replaced = epsilon(releases, sigma, 1e-5, "replace", accounting)
    assert replaced == pytest.approx(epsilon(releases, sigma / 2, 1e-5, "participation", accounting), rel=1e-9)
    exact = theorem_2(releases, sigma, 1e-5, sensitivity=2)
    if accounting == "renyi":
        assert exact - 1e-9 <= replaced <= exact * 1.003
    else:
        assert replaced < exact


@pytest.mark.parametrize(("releases", "sigma"), SETTINGS)
def test_two_other_libraries_agree_on_the_bound(releases: int, sigma: float) -> None:
    from opacus.accountants import RDPAccountant  # takes a second

    orders = [1 + x / 100 for x in range(1, 30_000)]
    ours = epsilon(releases, sigma, 1e-5, "participation", "renyi")
    assert ours == pytest.approx(renyi_epsilon(sigma, releases, 1e-5, orders), rel=0.003)
    opacus = RDPAccountant()
    opacus.history = [(sigma, 1.0, releases)]
    assert ours == pytest.approx(opacus.get_epsilon(1e-5, alphas=orders), rel=0.003)


@pytest.mark.parametrize(
    ("releases", "sigma", "delta"), [(*how, (1e-5, 1e-8)[place % 2]) for place, how in enumerate(SETTINGS)]
)
def test_two_other_libraries_agree_on_the_exact_value(releases: int, sigma: float, delta: float) -> None:
    from opacus.accountants.analysis.gdp import eps_from_mu

    ours = epsilon(releases, sigma, delta, "participation")
    assert ours == pytest.approx(exact_epsilon([(sigma, releases)], delta), rel=0.002, abs=2e-4)
    assert ours == pytest.approx(eps_from_mu(mu=math.sqrt(releases) / sigma, delta=delta), rel=1e-6)


def test_releases_with_other_noise_add_up_in_their_precision() -> None:
    """The budget converts releases of an earlier start with another sigma in the same way."""
    ours = epsilon(7 + 3 * (10 / 4) ** 2, 10.0, 1e-5, "participation")
    assert ours == pytest.approx(exact_epsilon([(10.0, 7), (4.0, 3)], 1e-5), rel=0.002)


@pytest.mark.parametrize(("mu", "exact", "renyi"), [(0.2449, 0.906, 0.990), (1.0, 4.38, 4.73)])
def test_renyi_accounting_overestimates(mu: float, exact: float, renyi: float) -> None:
    assert epsilon(1, 1 / mu, 1e-5, "row", "exact") == pytest.approx(exact, abs=0.006)
    assert epsilon(1, 1 / mu, 1e-5, "row", "renyi") == pytest.approx(renyi, abs=0.006)


@pytest.mark.parametrize(
    ("sigma", "budget", "releases"),
    [(20, 1, 24), (20, 8, 983), (30, 1, 54), (30, 8, 2213), (40, 1, 97), (40, 8, 3934)],
)
def test_a_budget_pays_for_so_many_releases(sigma: float, budget: float, releases: int) -> None:
    """Values measured with Opacus on the authors' code, which uses other orders alpha."""
    assert most_releases(Event(1, sigma), budget, 1e-5, "renyi") == pytest.approx(releases, rel=0.001)
    assert most_releases(Event(1, sigma), budget, 1e-5) > releases * 1.1


@given(st.floats(0.2, 20), st.floats(1, 60), st.sampled_from(["participation", "replace"]), ACCOUNTING)
def test_one_more_release_would_pass_the_budget(budget: float, sigma: float, adjacency: str, accounting: str) -> None:
    count = most_releases(Event(1, sigma, SENSITIVITY[adjacency]), budget, 1e-5, accounting)
    cost, more = (epsilon(number, sigma, 1e-5, adjacency, accounting) for number in (count, count + 1))
    assert cost <= budget < more


@given(st.floats(0.2, 20), st.integers(1, 5000), st.sampled_from(["participation", "replace"]), ACCOUNTING)
def test_the_sigma_found_is_the_smallest(budget: float, releases: int, adjacency: str, accounting: str) -> None:
    sigma = find_noise_multiplier(budget, 1e-5, releases, adjacency, accounting)
    cost, more = (epsilon(releases, noise, 1e-5, adjacency, accounting) for noise in (sigma, sigma * 0.99))
    assert cost <= budget < more


def test_nothing_released_costs_nothing() -> None:
    assert epsilon(0, 1.0, 1e-5, "replace") == 0.0


def test_an_impossible_budget_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"federation.privacy.epsilon = 1e-09: impossible for 1000 releases"):
        find_noise_multiplier(1e-9, 1e-12, 1000, "participation")


def test_a_server_that_chooses_the_end_by_the_releases_stays_within_the_stated_epsilon_alone() -> None:
    """Privacy losses of 20 evaluations; the server ends the run once a running count of epsilon is exceeded."""
    sigma, delta, each, evaluations, runs = 5.0, 0.01, 10, 20, 100_000
    made = each * np.arange(1, evaluations + 1)
    running = np.array([epsilon(int(count), sigma, delta, "replace") for count in made])
    mu = 2 / sigma
    steps = np.random.default_rng(0).normal(each * mu**2 / 2, mu * math.sqrt(each), (runs, evaluations))
    losses = steps.cumsum(1)
    over = losses > running + 0.3
    end = np.where(over.any(1), over.argmax(1), evaluations - 1)
    lost = losses[np.arange(runs), end]

    def spent(claimed: Any) -> float:
        return float(np.maximum(0, -np.expm1(claimed - lost)).mean())

    stated = stated_releases(each, int(made[-1]), None)
    assert spent(epsilon(stated, sigma, delta, "replace")) <= delta < spent(running[end]) / 2


def test_more_than_the_planned_releases_are_bounded_by_the_budget() -> None:
    assert [stated_releases(made, 30, 40) for made in (0, 1, 30, 31, 40)] == [0, 30, 30, 40, 40]
    assert stated_releases(31, 30, None) == 31
