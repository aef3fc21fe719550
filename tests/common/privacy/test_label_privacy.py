"""Noise on labels: its distribution, its cost, and the posterior by Bayes' rule."""

from __future__ import annotations

import math
import os
import random

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, dlaplace, kstest, laplace

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.labels import NoisyLabels, posterior
from colonnade.common.privacy.laplace import discrete_laplace
from tests.common.config.test_config import error, tree

GRID = 2**20


def noisy(rows: int = 2000, classes: int = 10, **config: float | bool) -> tuple[torch.Tensor, NoisyLabels]:
    labels = torch.arange(rows) % classes
    return labels, NoisyLabels.draw(labels, classes, LabelPrivacyConfig(**{"seeded": True, **config}), 0)


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_whole_numbers_come_as_often_as_they_should(scale: int) -> None:
    drawn = discrete_laplace(200_000, scale, random.Random(scale).randbytes)
    inner = np.arange(-3 * scale, 3 * scale + 1)
    counts = [(drawn < inner[0]).sum(), *((drawn == x).sum() for x in inner), (drawn > inner[-1]).sum()]
    exact = dlaplace(1 / scale)
    chances = [exact.cdf(inner[0] - 1), *exact.pmf(inner), exact.sf(inner[-1])]
    assert chisquare(counts, 200_000 * np.array(chances) / sum(chances)).pvalue > 1e-3


def test_the_noise_on_labels_is_laplaces_with_the_deviation_that_was_asked_for() -> None:
    labels, drawn = noisy(rows=20_000, deviation=2.0)
    noise = drawn.values - torch.nn.functional.one_hot(labels, 10)
    assert kstest(noise.flatten().numpy(), laplace(scale=math.sqrt(2)).cdf).pvalue > 1e-3
    assert noise.std().item() == pytest.approx(2.0, rel=0.02)
    assert (drawn.values * GRID == (drawn.values * GRID).round()).all()


def test_noise_is_new_each_time_unless_a_seed_is_asked_for() -> None:
    (_, one), (_, two) = noisy(epsilon=1.0), noisy(epsilon=1.0)
    assert torch.equal(one.values, two.values) and one.seeded
    (_, one), (_, two) = noisy(epsilon=1.0, seeded=False), noisy(epsilon=1.0, seeded=False)
    assert not torch.equal(one.values, two.values) and not one.seeded
    assert LabelPrivacyConfig(epsilon=1.0).bits(0) is os.urandom


@pytest.mark.parametrize("config", [{"epsilon": 0.3}, {"epsilon": 2.8}, {"deviation": 1.0}, {"deviation": 2.0}])
def test_epsilon_is_the_largest_log_ratio_over_all_pairs_of_labels(config: dict[str, float]) -> None:
    """Computes the definition from the exact probabilities of every entry on the grid."""
    _, drawn = noisy(**config)
    scale = round(drawn.noise.scale * GRID)
    # One entry is 1 under one label and 0 under another; -GRID, 0, GRID and 2 GRID hold the extremes of each ratio.
    points = np.array([-GRID, 0, GRID // 3, GRID, 2 * GRID])
    log_p = lambda value: -np.abs(points - value) / scale  # noqa: E731  # up to a constant that is the same
    up, down = (log_p(GRID) - log_p(0)).max(), (log_p(0) - log_p(GRID)).max()
    assert up + down == pytest.approx(drawn.epsilon, rel=1e-12)
    asked = config.get("epsilon") or 2 * math.sqrt(2) / config["deviation"]
    assert asked * (1 - 1e-5) <= drawn.epsilon <= asked  # never more than configured


def test_the_papers_two_budgets() -> None:
    (_, one), (_, two) = noisy(deviation=1.0), noisy(deviation=2.0)
    assert (round(one.epsilon, 1), round(two.epsilon, 1)) == (2.8, 1.4)


def test_the_posterior_is_bayes_rule_by_brute_force() -> None:
    labels, drawn = noisy(rows=50, classes=4, deviation=1.5)
    logits = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = posterior(logits, drawn.evidence())
    density = laplace(scale=drawn.noise.scale).pdf
    for j, v in enumerate(drawn.values.numpy()):
        prior = np.exp(logits[j].numpy())
        joint = np.array([prior[c] * density(v - np.eye(4)[c]).prod() for c in range(4)])
        np.testing.assert_allclose(found[j].numpy(), joint / joint.sum(), rtol=1e-10)
    assert drawn.evidence().abs().max() <= drawn.epsilon / 2 + 1e-12
    assert (drawn.evidence().argmax(1) == labels).float().mean() > 0.3


def test_no_gradient_flows_through_a_posterior() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    assert not posterior(logits, torch.zeros(2, 3)).requires_grad


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"epsilon": 0}, r"server\.privacy\.labels\.epsilon = 0: expected at least 1e-06"),
        ({"epsilon": -1}, r"server\.privacy\.labels\.epsilon = -1"),
        ({"deviation": 0}, r"server\.privacy\.labels\.deviation = 0"),
        ({"deviation": float("inf")}, r"server\.privacy\.labels\.deviation"),
        ({}, r"server\.privacy\.labels: neither epsilon nor deviation is given"),
        ({"epsilon": 1, "deviation": 2}, r"server\.privacy\.labels: both epsilon and deviation are given"),
        ({"epsilon": 1, "mechanism": "gauss"}, r"server\.privacy\.labels\.mechanism = 'gauss': expected 'laplace'"),
        ({"epsilom": 1}, r"server\.privacy\.labels\.epsilom: unknown key \(did you mean 'epsilon'\?\)"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(labels: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(tree(server__privacy__labels=labels))


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ({"name": "split"}, r"server\.privacy\.labels\.auxiliary = likelihood: split has no z"),
        (
            {"name": "vimadmm", "rho": 0.5},
            r"auxiliary = likelihood with federation\.protocol\.rho = 0\.5: .* not convex",
        ),
    ],
)
def test_a_likelihood_of_z_needs_a_z_and_a_convex_loss(protocol: dict[str, object], message: str) -> None:
    labels = {"epsilon": 1, "auxiliary": "likelihood"}
    with pytest.raises(ConfigError, match=message) as refusal:
        parse(tree(federation__protocol=protocol, server__privacy__labels=labels))
    assert refusal.value.hint
    parse(tree(federation__protocol={"name": "vimadmm", "rho": 0.51}, server__privacy__labels=labels))


def test_a_likelihood_is_the_default_of_sets_where_it_is_convex() -> None:
    sets, vectors = LabelPrivacyConfig(mechanism="subset", epsilon=1), LabelPrivacyConfig(epsilon=1)
    assert sets.likelihood(0.51) and not sets.likelihood(0.5) and not vectors.likelihood(1.0)


def test_an_unknown_key_beside_labels_is_refused() -> None:
    assert "server.privacy.label: unknown key" in str(error(tree(server__privacy={"label": {"epsilon": 1}})))
