"""Subset selection: its cost, its distribution, its information, and estimates from it."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.labels import NoisyLabels, posterior
from colonnade.common.privacy.laplace import uniform_below
from colonnade.common.privacy.subsets import SubsetSelection
from tests.common.config.test_config import tree

PAPERS = (2 * math.sqrt(2), math.sqrt(2))  # epsilon of the paper's lambda of 1 and 2


def chances(noise: SubsetSelection) -> np.ndarray:
    """P(S | y) of every set and label, from the definition: (sets, classes)."""
    w = noise.odds[0] / noise.odds[1]
    weights = [[w if y in s else 1.0 for y in range(noise.classes)] for s in sets(noise)]
    return np.array(weights) / np.sum(weights, axis=0)


def sets(noise: SubsetSelection) -> list[tuple[int, ...]]:
    return list(combinations(range(noise.classes), noise.size))


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, *PAPERS, 9.0])
@pytest.mark.parametrize(("classes", "size"), [(2, 1), (5, 1), (5, 2), (5, 4), (10, 3)])
def test_no_set_is_more_than_e_to_the_epsilon_times_as_likely_under_one_label_as_under_another(
    classes: int, size: int, epsilon: float
) -> None:
    noise = SubsetSelection(classes, size, epsilon)
    p = chances(noise)
    worst = math.log((p.max(1) / p.min(1)).max())
    assert worst == pytest.approx(noise.epsilon, rel=1e-6)
    assert epsilon * (1 - 1e-4) - 1e-9 <= noise.epsilon <= epsilon


@pytest.mark.parametrize(("classes", "size", "epsilon"), [(2, 1, 1.0), (5, 2, 0.7), (6, 1, 2.0), (4, 3, 1.5)])
def test_sets_come_as_often_as_they_should(classes: int, size: int, epsilon: float) -> None:
    noise, n = SubsetSelection(classes, size, epsilon), 40_000
    expected, number = chances(noise), {s: i for i, s in enumerate(sets(noise))}
    for label in range(classes):
        drawn = noise.select(np.full(n, label), random.Random(label + 1).randbytes)
        assert (drawn.sum(1) == size).all()
        found = Counter(tuple(np.flatnonzero(row)) for row in drawn)
        counts = [found[s] for s in number]
        assert chisquare(counts, n * expected[:, label]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("classes", "epsilon", "bits"), [(10, PAPERS[0], 1.29), (10, PAPERS[1], 0.350), (2, 1.0, 0.160)]
)
def test_the_default_size_says_most_of_a_label(classes: int, epsilon: float, bits: float) -> None:
    best = SubsetSelection.best(classes, epsilon)
    assert best.information == pytest.approx(bits, rel=2e-3)
    every = [SubsetSelection(classes, size, epsilon) for size in range(1, classes)]
    for noise in every:
        p = chances(noise)  # the definition of mutual information, over all sets
        exact = (p / classes * np.log2(p / p.mean(1, keepdims=True))).sum()
        assert noise.information == pytest.approx(exact, rel=1e-6)
    assert best.information == max(noise.information for noise in every)


def test_it_says_more_than_laplaces_noise_at_the_same_epsilon() -> None:
    """The information of noise on one-hot labels, by its own posteriors: .82, .257 and .074 bits."""
    for classes, epsilon, expected in ((10, PAPERS[0], 0.820), (10, PAPERS[1], 0.257), (2, 1.0, 0.0741)):
        labels = torch.arange(60_000) % classes
        noisy = NoisyLabels.draw(labels, classes, LabelPrivacyConfig(epsilon=epsilon, seeded=True), 0)
        log_q = noisy.evidence().log_softmax(1)
        bits = math.log2(classes) + (log_q.exp() * log_q).sum(1).mean().item() / math.log(2)
        assert bits == pytest.approx(expected, abs=0.01)
        assert SubsetSelection.best(classes, epsilon).information > 1.3 * bits


def test_the_posterior_is_bayes_rule_by_brute_force() -> None:
    labels = torch.arange(60) % 5
    noisy = NoisyLabels.draw(labels, 5, LabelPrivacyConfig(mechanism="subset", epsilon=1.2, size=2, seeded=True), 0)
    assert isinstance(noisy.noise, SubsetSelection)
    p, number = chances(noisy.noise), {s: i for i, s in enumerate(sets(noisy.noise))}
    logits = torch.randn(60, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = posterior(logits, noisy.evidence())
    for j, row in enumerate(noisy.values.numpy()):
        joint = np.exp(logits[j].numpy()) * p[number[tuple(np.flatnonzero(row))]]
        np.testing.assert_allclose(found[j].numpy(), joint / joint.sum(), rtol=1e-9)


def test_training_by_the_posterior_is_gradient_descent_on_the_loss_of_the_set() -> None:
    """-log sum_c p_c P(S | c), differentiated by autograd: the forward correction."""
    noisy = NoisyLabels.draw(
        torch.arange(40) % 4, 4, LabelPrivacyConfig(mechanism="subset", epsilon=0.9, seeded=True), 0
    )
    logits = torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    likelihood = noisy.evidence().exp()
    loss = -(logits.softmax(1) * likelihood).sum(1).log().sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(logits.detach().softmax(1) - posterior(logits, noisy.evidence()), gradient)


def test_sizes_of_classes_are_estimated_without_bias() -> None:
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([9000, 3000, 6000, 2000]))
    for size in (1, 2, 3):
        config = LabelPrivacyConfig(mechanism="subset", epsilon=2.0, size=size, seeded=True)
        noisy = NoisyLabels.draw(labels, 4, config, size)
        torch.testing.assert_close(noisy.counts(), torch.bincount(labels).double(), atol=450, rtol=0)


def test_sets_are_new_each_time_unless_a_seed_is_asked_for() -> None:
    labels = torch.arange(2000) % 10
    for seeded in (True, False):
        config = LabelPrivacyConfig(mechanism="subset", epsilon=1.0, seeded=seeded)
        one, two = (NoisyLabels.draw(labels, 10, config, 0) for _ in range(2))
        assert torch.equal(one.values, two.values) is seeded


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 27.0, 28.0, 1e6])
def test_integers_stay_within_their_range(epsilon: float) -> None:
    noise = SubsetSelection(2**20 - 1, 2**19, epsilon)
    a, b = noise.odds
    assert b <= a <= 2**40 and a * noise.size + b * (noise.classes - noise.size) <= 2**62
    assert noise.epsilon <= epsilon
    assert SubsetSelection(3, 1, epsilon).select(np.array([2]), random.Random(1).randbytes).sum() == 1


def test_whole_numbers_below_a_bound_are_uniform() -> None:
    drawn = uniform_below(7, 70_000, random.Random(3).randbytes)
    assert chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("classes", "size", "epsilon"), [(3, 3, 1.0), (3, 0, 1.0), (1, 1, 1.0), (3, 1, 0.0), (3, 1, math.inf)]
)
def test_impossible_mechanisms_are_refused(classes: int, size: int, epsilon: float) -> None:
    with pytest.raises(InputError):
        SubsetSelection(classes, size, epsilon)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"epsilon": 0}, r"server\.privacy\.labels\.epsilon = 0: expected at least 1e-06"),
        ({"epsilon": -1}, r"server\.privacy\.labels\.epsilon = -1"),
        ({"deviation": 1}, r"deviation = 1 with mechanism = subset.*\n?.*2\.828"),
        ({}, r"neither epsilon nor deviation is given"),
        ({"epsilon": 1, "size": 0}, r"server\.privacy\.labels\.size = 0"),
        ({"epsilon": 1, "size": 10}, r"size = 10: of 10 classes a set must leave out one at least"),
        ({"epsilon": 1, "size": 11}, r"size = 11: of 10 classes"),
        ({"epsilon": 1, "size": 3, "mechanism": "laplace"}, r"size = 3 with mechanism = laplace"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(labels: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(tree(server__privacy__labels={"mechanism": "subset", **labels}))
    assert re.search(message, f"{refused.value} {refused.value.hint}")
