"""Codes and their encoder under audit: below their claims and near them; with less noise, above."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from colonnade.common.config.privacy import DiscretePrivacyConfig
from colonnade.common.data.rows import generator
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.noise import seeded_normals
from colonnade_lab.attacks.audit.canaries import audit
from colonnade_lab.attacks.audit.mechanisms import released_codes, trained_encoder

pytestmark = pytest.mark.slow

CONFIDENCE = 0.999


def plan(epsilon: float, sigma: float = 4.0, steps: int = 4, rate: float = 0.5, codes: int = 4) -> DiscretePlan:
    config = DiscretePrivacyConfig(mechanism="discrete", epsilon=epsilon, delta=1e-5, codes=codes)
    return DiscretePlan(
        config, sigma, 1, 1, None, 4000,
        encoder=SampledGaussian(rate, sigma, steps), codes=codes, classes=4, train=torch.arange(10),
    )  # fmt: skip


@pytest.mark.parametrize("codes", [2, 4])
def test_codes_keep_their_claim_and_a_larger_epsilon_does_not(codes: int) -> None:
    right = released_codes(plan(2.0, codes=codes), random.Random(1).randbytes)
    half = replace(released_codes(plan(4.0, codes=codes), random.Random(1).randbytes), epsilon=right.epsilon)
    found, broken = (audit(one, 20_000, 0, CONFIDENCE) for one in (right, half))
    assert not found.refuted and found.claimed == pytest.approx(2.0, rel=1e-6)
    assert found.least > 0.5 * 2.0
    assert broken.refuted


def test_the_encoder_keeps_its_claim_and_a_tenth_of_its_noise_does_not() -> None:
    """Secretly drawn rows, clipping, noise and averaging together; a row has an input of its own to be seen by."""
    normals = seeded_normals(generator("audited"))
    right = trained_encoder(plan(4.0), normals, random.Random(2).randbytes)
    tenth = trained_encoder(plan(4.0), lambda shape: 0.1 * normals(shape), random.Random(2).randbytes)
    found, broken = (audit(one, 2000, 0, CONFIDENCE) for one in (right, tenth))
    assert found.claimed == broken.claimed == plan(4.0).of_encoder
    assert not found.refuted and found.accuracy > 0.55, found  # the canaries are seen
    assert broken.refuted, broken
