"""Sizes of classes, and the verdict on models no better than chance: labels without relation are told from a signal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from sklearn.metrics import balanced_accuracy_score

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.data.labels import TargetScale
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.server.training.classes import UNEQUAL, ClassBalance
from colonnade.server.training.metrics import chance
from colonnade.server.training.metrics.quality import Score, describe
from colonnade.server.training.metrics.residuals import Residuals
from tests.server.test_quality import outputs


def probabilities(logits: np.ndarray) -> np.ndarray:
    each = np.exp(logits - logits.max(axis=1, keepdims=True))
    return each / each.sum(axis=1, keepdims=True)


def verdict(logits: np.ndarray, labels: np.ndarray) -> dict:
    return describe(probabilities(logits), labels)[1]["chance"]


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.9, 0.1], [0.6, 0.3, 0.1], [0.1] * 10])
def test_models_of_shuffled_labels_are_told_nearly_always(shares: list[float]) -> None:
    draws = np.random.default_rng(0)
    above = 0
    for _ in range(100):
        labels = np.append(draws.choice(len(shares), 300, p=shares), np.arange(len(shares)))
        biased = draws.normal(size=(len(labels), len(shares))) + 2 * np.log(shares)  # it knows how common they are
        above += verdict(biased, labels)["above"]
    assert above <= 7  # of 100, about one in 44


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.9, 0.1], [0.6, 0.3, 0.1]])
def test_models_with_a_signal_pass(shares: list[float]) -> None:
    draws = np.random.default_rng(1)
    for _ in range(50):
        labels = np.append(draws.choice(len(shares), 300, p=shares), np.arange(len(shares)))
        logits = draws.normal(size=(len(labels), len(shares))) + 2 * np.eye(len(shares))[labels]
        assert verdict(logits, labels)["above"]


def test_a_ranking_counts_though_the_commonest_class_is_always_said() -> None:
    """Rare classes: no probability passes one half, and yet the rows are ranked."""
    draws = np.random.default_rng(2)
    labels = (np.arange(1000) < 50).astype(int)
    logits = np.stack([np.full(1000, 5.0), labels + 0.7 * draws.normal(size=1000)], axis=1)
    assert (logits.argmax(axis=1) == 0).all()
    assert verdict(logits, labels)["above"]


@pytest.mark.parametrize("ties", [False, True])
def test_the_error_of_an_auc_is_that_over_permutations(ties: bool) -> None:
    draws = np.random.default_rng(3)
    scores = draws.integers(0, 3, 60) / 3 if ties else draws.normal(size=60)
    labels = (np.arange(60) < 15).astype(int)
    mixed = draws.permuted(np.tile(labels, (10_000, 1)), axis=1)
    found = (mixed @ rankdata(scores) - 15 * 16 / 2) / (15 * 45)  # the area of each, from Mann and Whitney's U
    p = np.stack([1 - scores, scores], axis=1)
    error = chance.of_classes(p, labels, 0.5)["error"]  # type: ignore[index]
    assert error == pytest.approx(np.std(found), rel=0.03)  # 0.7 % by chance


def test_the_error_of_a_balanced_accuracy_is_that_over_permutations() -> None:
    draws = np.random.default_rng(4)
    predicted, labels = draws.choice(3, 90, p=[0.7, 0.2, 0.1]), np.repeat([0, 1, 2], [60, 20, 10])
    found = []
    for _ in range(2000):
        mixed = draws.permutation(labels)
        found.append(np.mean([(predicted[mixed == each] == each).mean() for each in range(3)]))
    error = chance.of_classes(np.eye(3)[predicted], labels, None)["error"]  # type: ignore[index]
    assert error == pytest.approx(np.std(found), rel=0.15)  # a permutation draws without putting back


@pytest.mark.parametrize("classes", [2, 4])
def test_constant_outputs_are_no_better(classes: int) -> None:
    found = verdict(np.zeros((40, classes)), np.arange(40) % classes)
    assert not found["above"] and found["value"] == pytest.approx(found["chance"])


def test_a_class_that_these_rows_lack_is_no_part_of_chance() -> None:
    labels = np.arange(40) % 2
    found = verdict(np.eye(4)[labels] * 3, labels)
    assert found["chance"] == pytest.approx(0.5) and found["value"] == 1 and found["above"]


def test_rows_of_one_class_have_no_verdict_and_no_warning() -> None:
    assert verdict(np.zeros((5, 3)), np.zeros(5, dtype=int)) is None
    assert chance.warning(None, "test", "always saying the commonest class") is None


def test_a_diverged_model_is_warned_of() -> None:
    score = Score(0)
    score.add(torch.full((4, 2), torch.nan), torch.tensor([0, 1, 0, 0]))
    metrics, details = score.closer()
    assert metrics == {"baseline_accuracy": 0.75}
    assert "diverged" in str(chance.warning(details["chance"], "test", "x"))


def numbers(relation: float, rows: int = 200, predicted: torch.Tensor | None = None) -> tuple[dict, dict]:
    draws = torch.Generator().manual_seed(0)
    true = 100 + 20 * torch.randn(rows, 2, dtype=torch.float64, generator=draws)
    scale = TargetScale.fit(true, torch.arange(rows // 2))
    scaled = scale.apply(true)
    guess = relation * scaled + 0.3 * torch.randn(rows, 2, generator=draws) if predicted is None else predicted
    residuals = Residuals(scale)
    residuals.add(guess, scaled)
    metrics, details = residuals.closer()
    mean = true[: rows // 2].mean(dim=0)
    expected = (true - mean).square().mean(dim=0).sqrt().mean().item()
    assert metrics["baseline_rmse"] == pytest.approx(expected, rel=1e-6)
    return metrics, details


def test_numbers_are_compared_with_the_mean() -> None:
    assert numbers(0.9)[1]["chance"]["above"]
    assert not numbers(0.0)[1]["chance"]["above"]
    mean_itself = numbers(0, predicted=torch.zeros(200, 2))[1]["chance"]
    assert not mean_itself["above"] and mean_itself["value"] == pytest.approx(0, abs=1e-9)
    said = chance.warning(mean_itself, "validation", "always predicting the mean")
    assert said and said.startswith("on the validation rows the model is no better than always predicting the mean")
    assert "diverged" in str(
        chance.warning(numbers(0, predicted=torch.full((200, 2), torch.nan))[1]["chance"], "a", "b")
    )


@pytest.mark.parametrize(
    ("counts", "unequal", "measure"),
    [
        ([50, 50], False, "accuracy"),
        ([75, 25], False, "accuracy"),  # exactly 1.5 times its equal share
        ([76, 24], True, "auc"),
        ([0, 10], True, "auc"),
        ([15, 10, 5], False, "accuracy"),
        ([16, 9, 5], True, "balanced_accuracy"),
        ([0, 0], False, "accuracy"),  # no rows
        ([1] * 10, False, "accuracy"),
    ],
)
def test_unequal_is_more_than_so_many_times_the_equal_share(counts: list[int], unequal: bool, measure: str) -> None:
    balance = ClassBalance(counts)
    assert (balance.unequal, balance.measure) == (unequal, measure)
    assert UNEQUAL == 1.5


def test_of_equally_common_classes_it_is_the_first() -> None:
    assert ClassBalance([3, 5, 5]).commonest == 1 and ClassBalance([3, 5, 5]).share == pytest.approx(5 / 13)


def test_with_noisy_labels_the_sizes_are_estimated_from_them() -> None:
    labels = (torch.arange(5000) < 500).long()
    noisy = NoisyLabels.draw(labels, 2, LabelPrivacyConfig(epsilon=1, seeded=True), seed=0)
    balance = ClassBalance.estimated(noisy.counts())
    assert balance.commonest == 0 and balance.share == pytest.approx(0.9, abs=0.05) and balance.unequal
    assert list(balance.counts) != [4500, 500]


@pytest.mark.parametrize("classes", [2, 4])
def test_balanced_accuracy_is_that_of_scikit_learn(classes: int) -> None:
    p, labels = outputs(80, classes, 1)
    assert describe(p, labels)[0]["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, p.argmax(1)))
    kept = labels != 0
    with np.errstate(all="raise"):
        found = describe(p[kept], labels[kept])[0]["balanced_accuracy"]
    expected = np.mean([(p[kept].argmax(1)[labels[kept] == each] == each).mean() for each in range(1, classes)])
    assert found == pytest.approx(expected)
