"""Labels released by a prior: cost, distribution, information, and the one release of a row."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.errors import ConfigError, EnvironmentFault, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.common.privacy.prior import GroupedSubsets, PendingLabels, first_rows
from colonnade.common.privacy.subsets import SubsetSelection
from tests.common.config.test_config import tree

FLAT = (0.1,) * 10
SURE = (0.002,) * 4 + (0.982,) + (0.002,) * 5
TORN = (0.45, 0.01, 0.01, 0.4, 0.01, 0.08, 0.01, 0.01, 0.01, 0.01)


def by_prior(classes: int, epsilon: float) -> GroupedSubsets:
    return GroupedSubsets.best(classes, epsilon)


def members_of(row: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(row).tolist())


def expected(noise: GroupedSubsets, prior: tuple[float, ...]) -> tuple[dict[tuple[int, ...], np.ndarray], float]:
    """P(S | y) of every set of classes and label, by the definition, and its mutual information in bits.

    Every number of groups and every size is tried with code of its own.
    """
    classes, w = len(prior), noise.odds[0] / noise.odds[1]
    order = sorted(range(classes), key=lambda c: -prior[c])
    best: tuple[dict[tuple[int, ...], np.ndarray], float] = ({}, -1.0)
    for groups in range(2, classes + 1):
        parts = [[c] for c in order[: groups - 1]] + [order[groups - 1 :]]
        for size in range(1, groups // 2 + 1):
            chosen = [tuple(sorted(c for g in s for c in parts[g])) for s in combinations(range(groups), size)]
            weights = np.array([[w if y in s else 1.0 for y in range(classes)] for s in chosen])
            p = weights / weights.sum(0)
            joint = p * np.array(prior)
            bits = float((joint * np.log2(p / joint.sum(1, keepdims=True))).sum())
            if bits > best[1] + 1e-12:
                best = (dict(zip(chosen, p, strict=True)), bits)
    return best


@pytest.mark.parametrize("epsilon", [0.3, math.sqrt(2), 2 * math.sqrt(2), 6.0])
@pytest.mark.parametrize("prior", [FLAT, SURE, TORN, (0.6, 0.4), (0.05, 0.9, 0.05)])
def test_no_set_is_more_than_e_to_the_epsilon_times_as_likely_under_another_label_whatever_the_prior(
    prior: tuple[float, ...], epsilon: float
) -> None:
    """Exhaustively over the drawn mechanism's sets; and what is drawn is that mechanism, by chi-square."""
    noise, n = by_prior(len(prior), epsilon), 4_000
    table, _ = expected(noise, prior)
    ratios = [math.log(p.max() / p.min()) for p in table.values()]
    assert max(ratios) == pytest.approx(noise.epsilon, rel=1e-6) and noise.epsilon <= epsilon
    for label in range(0, len(prior), 3):
        drawn = noise.draw_by(
            torch.full((n,), label), torch.tensor([prior]).repeat(n, 1), random.Random(label).randbytes
        )
        sets, times = np.unique(drawn.numpy(), axis=0, return_counts=True)
        found = Counter(dict(zip(map(members_of, sets), times.tolist(), strict=True)))
        assert set(found) <= set(table)
        counts = np.array([found[s] for s in table])
        chances = n * np.array([p[label] for p in table.values()])
        often = chances > 5
        scale = counts[often].sum() / chances[often].sum()
        assert chisquare(counts[often], chances[often] * scale).pvalue > 1e-4


@pytest.mark.parametrize("prior", [TORN, SURE])
def test_the_evidence_is_the_exact_likelihood_of_every_class(prior: tuple[float, ...]) -> None:
    noise = by_prior(10, 1.4)
    table, _ = expected(noise, prior)
    for chosen, p in table.items():
        values = torch.zeros(1, 10, dtype=torch.float64)
        values[0, list(chosen)] = 1.0
        evidence = noise.evidence(values)[0].numpy()
        np.testing.assert_allclose(evidence - evidence[0], np.log(p / p[0]), atol=1e-9)


def test_a_prior_tells_more_of_a_label_and_a_flat_one_as_much_as_plain_sets() -> None:
    for epsilon in (math.sqrt(2), 2 * math.sqrt(2)):
        noise = by_prior(10, epsilon)
        assert expected(noise, FLAT)[1] == pytest.approx(noise.information, rel=1e-9)
        for prior in (SURE, TORN):
            plain = _information(noise, prior)
            assert expected(noise, prior)[1] > 1.2 * plain


def _information(plain: SubsetSelection, prior: tuple[float, ...]) -> float:
    w = plain.odds[0] / plain.odds[1]
    chosen = combinations(range(len(prior)), plain.size)
    weights = np.array([[w if y in s else 1.0 for y in range(len(prior))] for s in chosen])
    p = weights / weights.sum(0)
    joint = p * np.array(prior)
    return float((joint * np.log2(p / joint.sum(1, keepdims=True))).sum())


@pytest.mark.parametrize(
    "prior",
    [torch.ones(3, 4), torch.zeros(2, 4), torch.full((2, 4), float("nan")), torch.tensor([[0.5, 0.5, -1, 1]] * 2)],
)
def test_a_prior_that_is_none_is_refused(prior: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"probabilities above 0, of shape \(2, 4\)"):
        by_prior(4, 1.0).draw_by(torch.tensor([0, 1]), prior, random.Random(0).randbytes)


def test_many_classes_are_drawn_as_well() -> None:
    drawn = by_prior(300, 2.0).draw_by(torch.arange(9), torch.ones(9, 300), random.Random(0).randbytes)
    assert drawn.shape == (9, 300) and drawn.any(1).all() and not drawn.all(1).any()


def test_a_tenth_is_released_at_the_start_and_the_classes_sizes_are_estimated_from_it() -> None:
    labels = torch.tensor([0, 0, 0, 1])[torch.arange(20_000) * 7919 % 4]
    noisy = NoisyLabels.draw(labels, 2, LabelPrivacyConfig(mechanism="subset", epsilon=2, prior=True, seeded=True), 0)
    assert noisy.values.any(1).nonzero().flatten().tolist() == first_rows(20_000).tolist()
    assert noisy.counts().tolist() == pytest.approx([15_000, 5_000], rel=0.2)
    assert len(first_rows(20_000)) == 2_000 and noisy.evidence().any(1).sum() == 2_000  # nothing is said of the others


class Disk:
    """Keeps what is stored, or refuses it."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []
        self.full = False

    def __call__(self, values: torch.Tensor) -> None:
        if self.full:
            raise EnvironmentFault("no room")
        self.kept.append(values.clone())


def pending(disk: Disk, rows: torch.Tensor, labels: torch.Tensor) -> PendingLabels:
    values = torch.zeros(len(rows), 4, dtype=torch.float64)
    bits = lambda after: random.Random(after).randbytes  # noqa: E731
    return PendingLabels(rows, labels.clone(), values, by_prior(4, 1.0).draw_by, bits, disk)


ROWS, LABELS = torch.arange(0, 40, 2), torch.arange(20) % 4


def test_a_row_is_released_once_whatever_the_model_says_later_and_is_stored_before() -> None:
    disk = Disk()
    waiting = pending(disk, ROWS, LABELS)
    batch = torch.tensor([4, 0, 6])
    new = waiting.release(batch, torch.randn(3, 4))
    assert new.tolist() == [0, 2, 3] and torch.equal(disk.kept[-1], waiting.values)
    before = waiting.values.clone()
    assert not len(waiting.release(batch.flip(0), 10 * torch.randn(3, 4))) and torch.equal(before, waiting.values)
    again = waiting.release(torch.tensor([8, 8, 4, 1, 37]), torch.randn(5, 4))  # twice, again, and none of training
    assert again.tolist() == [4] and len(disk.kept) == 2
    assert torch.equal(waiting.values[[0, 2, 3]], before[[0, 2, 3]])
    assert (waiting.labels == -1).tolist() == waiting.released.tolist()


def test_a_disk_that_refuses_leaves_the_row_waiting() -> None:
    disk = Disk()
    disk.full, waiting = True, pending(disk, ROWS, LABELS)
    with pytest.raises(EnvironmentFault):
        waiting.release(ROWS[:5], torch.zeros(5, 4))
    assert not waiting.values.any() and torch.equal(waiting.labels, LABELS)


def test_a_release_depends_on_no_label_but_its_own() -> None:
    one, other = pending(Disk(), ROWS, LABELS), pending(Disk(), ROWS, LABELS)
    other.labels[7] = (other.labels[7] + 2) % 4
    for batch in (ROWS[:6], ROWS[6:9], ROWS[9:]):
        logits = torch.randn(len(batch), 4)
        for each in (one, other):
            each.release(batch, logits)
    differing = (one.values != other.values).any(1).nonzero().flatten().tolist()
    assert set(differing) <= {7}
    assert any(
        not torch.equal(by_prior(4, 1.0).draw(torch.tensor([a]), random.Random(s).randbytes),
                        by_prior(4, 1.0).draw(torch.tensor([b]), random.Random(s).randbytes))
        for (a, b), s in product([(0, 2), (1, 3)], range(5))
    )  # fmt: skip  # a label can make a difference


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"epsilon": 1, "prior": True}, r"prior = true with mechanism = laplace"),
        ({"mechanism": "subset", "epsilon": 1, "prior": True, "size": 2}, r"size = 2 with prior = true"),
        ({"mechanism": "subset", "epsilon": 1, "size": 11}, r"labels\.size = 11: of 10 classes"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(labels: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        parse(tree(server__privacy__labels=labels))
    assert refusal.value.hint


def test_codes_needs_all_labels_before_there_is_a_model() -> None:
    labels = {"mechanism": "subset", "epsilon": 1, "prior": True}
    with pytest.raises(ConfigError, match="prior = true with codes"):
        parse(tree(federation__protocol={"name": "codes"}, server__privacy__labels=labels))
