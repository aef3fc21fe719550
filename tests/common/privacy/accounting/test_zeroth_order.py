"""VFL-CZOFO's Theorem 4.1 against its Table 2, another library, and a mechanism that meets its delta and leaks."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.zeroth_order import ZerothOrderClaim
from tests.support.oracles import exact_epsilon, renyi_epsilon

TEN = ZerothOrderClaim(zeta=20.1, variance=1.61, rows=60_000, turns=93_800)
HUNDRED = ZerothOrderClaim(zeta=7.3, variance=0.15, rows=60_000, turns=93_800)


def google(claim: ZerothOrderClaim, delta: float) -> float:
    sensitivity = 2 * claim.zeta / claim.rows
    return renyi_epsilon(math.sqrt(claim.variance) / sensitivity, claim.turns, delta)


@pytest.mark.parametrize(("claim", "step"), [(TEN, 2.8e-3), (HUNDRED, 3.3e-3)])
def test_a_step_has_the_cost_of_table_2(claim: ZerothOrderClaim, step: float) -> None:
    assert claim.epsilon == pytest.approx(step, abs=5e-5)


@pytest.mark.parametrize(("claim", "whole"), [(TEN, 5.24), (HUNDRED, 6.40)])
def test_the_theorem_that_the_paper_cites_gives_less_than_table_2(claim: ZerothOrderClaim, whole: float) -> None:
    assert claim.epsilon_bar == pytest.approx(whole, abs=5e-3)


def test_table_2_has_the_epsilon_under_the_root() -> None:
    """85.9 at q = 10 to the last digit; 93.6 at q = 100 within what the rounding of the inputs leaves open."""
    assert TEN.epsilon_bar_printed == pytest.approx(85.9, abs=0.05)
    low, high = (
        ZerothOrderClaim(zeta, variance, 60_000, 93_800).epsilon_bar_printed
        for zeta, variance in ((7.25, 0.155), (7.35, 0.145))
    )
    assert low < 93.6 < HUNDRED.epsilon_bar_printed < high


def test_a_mechanism_that_sometimes_publishes_all_labels_meets_the_delta_of_table_2() -> None:
    """A mechanism that shows all labels with probability p and nothing else has epsilon 0 at delta = p, and no less."""
    assert TEN.delta_bar == pytest.approx(9.4e-2, abs=5e-4)
    shows = Fraction(TEN.delta_bar)  # P(shown | y) - e^0 P(shown | y') = p - 0
    assert shows > Fraction(1, 11)
    assert TEN.delta_bar * TEN.rows > 5_000  # where it should be far below one row


@pytest.mark.parametrize("claim", [TEN, HUNDRED])
def test_renyis_composition_of_the_same_steps_is_that_of_another_library(claim: ZerothOrderClaim) -> None:
    assert claim.epsilon_renyi == pytest.approx(google(claim, 1e-6), rel=0.003)
    assert claim.epsilon_renyi < claim.epsilon_bar / 7


def test_the_exact_loss_of_the_steps_is_below_both_bounds() -> None:
    steps = 60_000 * math.sqrt(1.61) / 40.2 / math.sqrt(93_800)  # T steps are one
    assert 0 < exact_epsilon([(steps, 1)], 1e-6) < TEN.epsilon_renyi < TEN.epsilon_bar


def test_with_the_batch_for_n_the_premise_of_the_mechanism_is_gone() -> None:
    batch = ZerothOrderClaim(20.1, 1.61, 64, 93_800)
    assert batch.epsilon == pytest.approx(TEN.epsilon * 60_000 / 64) and batch.epsilon > 1


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e3), st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_steps_and_larger_gradients_cost_more(zeta: float, variance: float, rows: int, turns: int) -> None:
    claim = ZerothOrderClaim(zeta, variance, rows, turns)
    for dearer in (
        ZerothOrderClaim(2 * zeta, variance, rows, turns),
        ZerothOrderClaim(zeta, variance, rows, 2 * turns),
    ):
        assert claim.epsilon <= dearer.epsilon and claim.epsilon_bar <= dearer.epsilon_bar
        assert claim.delta_bar <= dearer.delta_bar
    if claim.epsilon <= 1:
        assert claim.epsilon_bar <= claim.epsilon_bar_printed


def test_a_report_is_complete_and_states_its_assumptions() -> None:
    report = TEN.report()
    assert report["epsilon_bar"] == TEN.epsilon_bar and report["turns"] == 93_800
    assert str(report["caveat"]).startswith("not a guarantee")


@pytest.mark.parametrize("wrong", [{"zeta": 0.0}, {"variance": math.nan}, {"rows": 0}, {"delta": 1.0}, {"turns": -1}])
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"^{name} = "):
        ZerothOrderClaim(**{"zeta": 1.0, "variance": 1.0, "rows": 10, "turns": 1, **wrong})
