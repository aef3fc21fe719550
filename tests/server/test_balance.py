"""Sizes of the classes: when they are unequal, and what then judges a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.server.training.classes import UNEQUAL, ClassBalance
from colonnade.server.training.metrics.quality import describe
from tests.server.test_quality import outputs


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
