"""Gradient matching: more than clusters where predictions differ within a class, and nothing from noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.gradients import match, match_batches
from colonnade_lab.attacks.labels import best_names, clusters, directions
from colonnade_lab.attacks.run import accuracy
from lab.tests.attacks.stage import captured

pytestmark = pytest.mark.slow

VAFL = {"name": "vafl", "embedding": 10}
NOISED = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 20, delta: 1e-4}"


def right(groups: Tensor, labels: Tensor) -> float:
    return accuracy(best_names(groups, labels, 5), labels)


def test_rows_whose_predictions_differ_are_matched_better_than_clustered() -> None:
    """Every row is mistaken for another class, surely: rows of a class have four directions, which meet others'."""
    found, clustered = [], []
    for number in range(5):
        draws = generator("planted", number)
        labels = torch.randint(0, 5, (100,), generator=draws)
        head, other = torch.randn(5, 4, generator=draws), torch.randn(100, 5, generator=draws)
        gradients = ((4 * other).softmax(1) - torch.eye(5)[labels]) @ head
        found.append(right(match(gradients, 5), labels))
        clustered.append(right(clusters(directions(gradients), 5), labels))
    assert sum(found) / 5 > sum(clustered) / 5 + 0.05 and sum(found) / 5 > 0.8


def test_noise_names_no_label() -> None:
    labels = torch.randint(0, 5, (100,), generator=generator("labels"))
    assert right(match(torch.randn(100, 12, generator=generator("noise")), 5), labels) < 0.4


def test_a_batch_of_the_digits_is_named_and_one_of_noised_answers_is_not(tmp_path: Path) -> None:
    clear, noised = (
        match_batches(captured(tmp_path / str(len(sets)), VAFL, "federation.epochs=1", *sets), "party1")[0]
        for sets in ((), (NOISED,))
    )
    assert clear.field == "Gradient.dh" and clear.accuracy > clear.chance + 0.3
    assert abs(noised.accuracy - noised.chance) < 0.06
