"""Audits: the bound against its definition, and every mechanism."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from colonnade.common.config.privacy import (
    AdaptivePrivacyConfig,
    DiscretePrivacyConfig,
    LabelPrivacyConfig,
    OnceConfig,
    PrivacyConfig,
    ResponseNoiseConfig,
)
from colonnade.common.contracts.schedule import PLANS
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.accountant import gaussian_epsilon
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes import DiscretePlan
from colonnade.common.privacy.noise import Normals, seeded_normals
from colonnade.common.privacy.rows import RowPlan
from colonnade.common.privacy.shaped import bring_into
from colonnade.common.privacy.sum_noise import noisy_ring
from colonnade_lab.attacks.audit import (
    Audited,
    Guesses,
    Neighbours,
    audit,
    embedded_rows,
    exact_epsilon,
    labels,
    least_of_any,
    least_of_gaussian,
    mechanisms,
    noisy_sums,
    p_value,
    party_matrices,
    released_codes,
    rescaled,
    responses,
    trained_encoder,
)
from lab.tests.attacks.stage import captured

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


CANARIES, CONFIDENCE = 2000, 0.999


def plan(config: PrivacyConfig | AdaptivePrivacyConfig, sigma: float) -> Any:
    return PLANS[config.mechanism](config, sigma, 10, 10, None, CANARIES)


def client(adjacency: str) -> Callable[[Normals], Audited]:
    made = PrivacyConfig(clip=3.0, noise_multiplier=2.0, delta=1e-5, adjacency=adjacency)  # type: ignore[arg-type]
    return lambda normals: party_matrices(plan(made, 2.0), 2, normals)


def rows(**more: Any) -> Callable[[Normals], Audited]:
    made = AdaptivePrivacyConfig.model_validate(
        {"mechanism": "adaptive", "clip": 0.7, "noise_multiplier": 1.5, "delta": 1e-5, **more}
    )
    return lambda normals: embedded_rows(plan(made, 1.5), 2, normals)


ANSWERS = ResponseNoiseConfig(clip=0.1, head_clip=1, noise_multiplier=3, delta=1e-5)

GAUSSIAN: dict[str, Callable[[Normals], Audited]] = {
    "a party replaced": client("replace"),
    "a party absent": client("participation"),
    "a row in a ball": rows(),
    "a row on a positive sphere": rows(release="positive_sphere"),
    "a row and its steps": rows(release="sphere", steps={"clip": 2, "cost": 0.5}),
    "a label in responses": lambda normals: responses(ANSWERS, 3, normals),
}


def drawn(factor: float) -> Normals:
    normals = seeded_normals(generator("audited noise"))
    return lambda shape: factor * normals(shape)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_mechanisms_keep_their_claims_and_half_of_their_noise_does_not(name: str) -> None:
    right, half = (audit(GAUSSIAN[name](drawn(factor)), CANARIES, 0, CONFIDENCE) for factor in (1.0, 0.5))
    assert right.claimed is not None and right.least_gaussian is not None
    assert not right.refuted and right.least_gaussian > 0.7 * right.claimed, right
    assert half.refuted and half.claimed == right.claimed
    assert half.least_gaussian is not None and half.least_gaussian > 1.5 * right.claimed


SUMS: dict[str, PrivacyConfig | AdaptivePrivacyConfig] = {
    "a party replaced": PrivacyConfig(clip=3.0, noise_multiplier=3.0, delta=1e-5, once=OnceConfig()),
    "a party absent": PrivacyConfig(
        clip=3.0, noise_multiplier=2.0, delta=1e-5, adjacency="participation", once=OnceConfig()
    ),
    "a row": AdaptivePrivacyConfig(mechanism="adaptive", clip=0.7, noise_multiplier=1.5, delta=1e-5, once=OnceConfig()),
}


@pytest.mark.parametrize("name", SUMS)
def test_noise_once_keeps_its_claim_in_a_sum_of_all_shares_and_not_of_a_quarter(name: str) -> None:
    made = plan(SUMS[name], SUMS[name].noise_multiplier or 1.0)
    made = replace(made, present=8)
    rings = noisy_ring(made, 4.0, 8, 64)
    right, quarter = (audit(noisy_sums(made, rings, 2, shares), CANARIES, 0, CONFIDENCE) for shares in (0, 2))
    assert right.claimed is not None and right.least_gaussian is not None
    # Its noise is the system's, and so the audit's own deviation, some .06 of the claim, is another in every run.
    assert not right.refuted and right.least_gaussian > 0.5 * right.claimed, right
    assert quarter.refuted and quarter.claimed == right.claimed


def test_a_run_with_noise_once_is_audited_by_its_sums(tmp_path: Path) -> None:
    sets = (
        "federation.privacy={clip: 0.5, noise_multiplier: 2, delta: 1e-5, once: {colluders: 1}}",
        "federation.rounds=1", "federation.epochs=0", "every_party.policy={min_parties: 2, min_colluders: 1}",
    )  # fmt: skip
    run = captured(tmp_path, {"name": "fdml", "embedding": 8, "aggregate": "blinded"}, *sets)
    ((setting, audited),) = mechanisms(run).items()
    assert setting == "federation.privacy.once"
    assert "3 shares" in audited.name and not audit(audited, 5000, 0, CONFIDENCE).refuted


@pytest.mark.parametrize("mechanism", ["laplace", "subset", "prior"])
@pytest.mark.parametrize("classes", [2, 10])
def test_noisy_labels_keep_their_claim_and_half_of_the_noise_does_not(
    classes: int, mechanism: Literal["laplace", "subset", "prior"]
) -> None:
    how = {"mechanism": "subset", "prior": True} if mechanism == "prior" else {"mechanism": mechanism}
    make = lambda epsilon: LabelPrivacyConfig.model_validate({**how, "epsilon": epsilon, "seeded": True})  # noqa: E731
    right, half = labels(make(2.0), classes), labels(make(4.0), classes)
    half = replace(half, epsilon=right.epsilon)
    found, broken = (audit(one, 20_000, 0, CONFIDENCE) for one in (right, half))
    assert not found.refuted and found.least > 0.6 * 2.0 and found.claimed == pytest.approx(2.0, rel=1e-4)
    assert broken.refuted and broken.least > 2.5


def test_noise_of_the_systems_randomness_is_audited_as_well() -> None:
    """The default source, which no seed repeats: wrong once in a thousand times."""
    made = AdaptivePrivacyConfig.model_validate(
        {"mechanism": "adaptive", "clip": 1, "noise_multiplier": 1.0, "delta": 1e-5}
    )
    assert not audit(embedded_rows(plan(made, 1.0), 1), 20_000, 0, CONFIDENCE).refuted


def test_a_quarter_of_the_noise_is_found_without_the_knowledge_that_it_is_normal() -> None:
    """By the bound for any mechanism, which needs many canaries and a delta far below one by their number."""
    found, broken = (audit(rows(delta=1e-9)(drawn(factor)), 200_000, 0, CONFIDENCE) for factor in (1.0, 0.25))
    assert found.claimed is not None and found.least < found.claimed < broken.least


def test_secret_steps_keep_their_claim_and_a_tenth_of_their_noise_does_not() -> None:
    """Releases have much noise, so that steps are what is seen; two releases are followed by a step each."""
    steps = {"clip": 2, "rate": 0.5, "noise_multiplier": 3.0}
    made = AdaptivePrivacyConfig.model_validate(
        {"mechanism": "adaptive", "clip": 0.7, "noise_multiplier": 50.0, "delta": 1e-5, "steps": steps}
    )
    whole = RowPlan(made, 50.0, 2, 2, None, CANARIES, steps=SampledGaussian(0.5, 3.0, 2))
    right, less = (audit(embedded_rows(whole, 2, drawn(factor)), CANARIES, 0, CONFIDENCE) for factor in (1.0, 0.1))
    assert right.claimed is not None and right.least <= right.claimed
    assert less.refuted


T, SIGMA, DELTA = 1.0, 2.0, 1e-5
CLAIM = gaussian_epsilon(SIGMA, DELTA)


def crowd(spread: float, other: float = -1.0) -> Neighbours:
    """Rows about one point, and a neighbour at the other end of the ball."""
    rows = spread * torch.randn(100, 8, generator=generator("crowd"))
    rows[:, 0] += 0.5
    return Neighbours(rows, torch.tensor([other, *[0.0] * 7]), "a crowd")


@pytest.mark.parametrize("shrink", [True, False])
def test_one_row_moves_a_crowd_and_the_audit_refutes_the_claim(shrink: bool) -> None:
    made = rescaled(crowd(0.05), T, SIGMA, DELTA, shrink=shrink, normals=seeded_normals(generator("noise")))
    found = audit(made, 1000, 0, 0.999)
    assert found.claimed == CLAIM and found.refuted and found.least > 1.4 * CLAIM
    assert exact_epsilon(crowd(0.05), T, SIGMA, DELTA, shrink=shrink) > 10 * CLAIM


def test_rows_that_fill_the_ball_keep_the_claim() -> None:
    rows = torch.randn(100, 8, generator=generator("ball"))
    pair = Neighbours(rows, rows.flip(0)[0], "rows of the data")
    assert exact_epsilon(pair, T, SIGMA, DELTA) < CLAIM
    found = audit(rescaled(pair, T, SIGMA, DELTA, normals=seeded_normals(generator("noise"))), 1000, 0, 0.999)
    assert not found.refuted


def test_a_neighbour_that_is_the_same_costs_nothing() -> None:
    pair = crowd(0.1)
    assert exact_epsilon(Neighbours(pair.rows, pair.rows[0], "same"), T, SIGMA, DELTA) == 0


def test_the_clip_alone_keeps_the_claim_on_the_same_rows() -> None:
    pair = crowd(0.05)
    moved = (bring_into("ball", T, pair.rows[:1]) - bring_into("ball", T, pair.other[None])).norm()
    assert gaussian_epsilon(2 * SIGMA * T / float(moved), DELTA) < CLAIM


def test_epsilon_is_that_of_the_released_batches_by_hand() -> None:
    """Two rows: mu + 3 sd is their distance, since its deviation is 0, so that they end 2t apart whatever they were."""
    pair = Neighbours(torch.tensor([[0.1, 0.0], [0.0, 0.0]]), torch.tensor([0.0, 0.4]), "two rows")
    apart = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).double()
    mu = float((apart[0] - apart[1]).norm()) / (2 * SIGMA * T)
    assert exact_epsilon(pair, T, SIGMA, DELTA) == pytest.approx(gaussian_epsilon(1 / mu, DELTA / 0.9987), rel=1e-4)


_SURE = 0.999


def code_plan(epsilon: float, sigma: float = 4.0, steps: int = 4, rate: float = 0.5, codes: int = 4) -> DiscretePlan:
    config = DiscretePrivacyConfig(mechanism="discrete", epsilon=epsilon, delta=1e-5, codes=codes)
    return DiscretePlan(
        config, sigma, 1, 1, None, 4000,
        encoder=SampledGaussian(rate, sigma, steps), codes=codes, classes=4, train=torch.arange(10),
    )  # fmt: skip


@pytest.mark.parametrize("codes", [2, 4])
def test_codes_keep_their_claim_and_a_larger_epsilon_does_not(codes: int) -> None:
    right = released_codes(code_plan(2.0, codes=codes), random.Random(1).randbytes)
    half = replace(released_codes(code_plan(4.0, codes=codes), random.Random(1).randbytes), epsilon=right.epsilon)
    found, broken = (audit(one, 20_000, 0, _SURE) for one in (right, half))
    assert not found.refuted and found.claimed == pytest.approx(2.0, rel=1e-6)
    assert found.least > 0.5 * 2.0
    assert broken.refuted


def test_the_encoder_keeps_its_claim_and_a_tenth_of_its_noise_does_not() -> None:
    """Secretly drawn rows, clipping, noise and averaging together; a row has an input of its own to be seen by."""
    normals = seeded_normals(generator("audited"))
    right = trained_encoder(code_plan(4.0), normals, random.Random(2).randbytes)
    tenth = trained_encoder(code_plan(4.0), lambda shape: 0.1 * normals(shape), random.Random(2).randbytes)
    found, broken = (audit(one, 2000, 0, _SURE) for one in (right, tenth))
    assert found.claimed == broken.claimed == code_plan(4.0).of_encoder
    assert not found.refuted and found.accuracy > 0.55, found  # the canaries are seen
    assert broken.refuted, broken
