"""Every mechanism under audit: as it is, below its claim and close to it; with half of its noise, above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from colonnade.common.config.label_privacy import LabelPrivacyConfig, ResponseNoiseConfig
from colonnade.common.config.privacy import AdaptivePrivacyConfig, OnceConfig, PrivacyConfig
from colonnade.common.contracts.schedule import PLANS
from colonnade.common.data.rows import generator
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.noise import Normals, seeded_normals
from colonnade.common.privacy.rows import RowPlan
from colonnade.common.privacy.sum_noise import noisy_ring
from colonnade_lab.attacks.audit.canaries import Audited, audit
from colonnade_lab.attacks.audit.mechanisms import OF_RUNS, embedded_rows, labels, noisy_sums, party_matrices, responses
from lab.tests.attacks.stage import captured

pytestmark = pytest.mark.slow

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
    found = {setting: of(run) for setting, of in OF_RUNS.items()}
    assert [setting for setting, one in found.items() if one] == ["federation.privacy.once"]
    audited = found["federation.privacy.once"]
    assert audited is not None and "3 shares" in audited.name and not audit(audited, 5000, 0, CONFIDENCE).refuted


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
