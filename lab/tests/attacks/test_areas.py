"""Areas under the curve, against scikit-learn and against many samples."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.bounds import area

pytestmark = pytest.mark.slow


def sample(number: int, rows: int = 150) -> tuple[Tensor, Tensor]:
    draws = generator("areas", number)
    labels = torch.randint(0, 3, (rows,), generator=draws)
    truth = torch.eye(3, dtype=torch.bool)[labels]
    return truth * 0.8 + torch.randn(rows, 1, generator=draws) + torch.randn(rows, 3, generator=draws), truth


@pytest.mark.parametrize("ties", [False, True])
def test_an_area_is_the_mean_over_classes(ties: bool) -> None:
    scores, truth = sample(0)
    scores = scores.round() if ties else scores
    each = [roc_auc_score(truth[:, name], scores[:, name]) for name in range(3)]
    assert area(scores, truth).auc == pytest.approx(sum(each) / 3, abs=1e-12)


def test_an_interval_has_the_spread_of_many_samples() -> None:
    """Classes share a row's noise here, so that intervals of independent areas would be too narrow."""
    found = [area(*sample(number)) for number in range(400)]
    areas = torch.tensor([one.auc for one in found])
    covered = [one.interval[0] <= areas.mean() <= one.interval[1] for one in found]
    assert 0.92 < sum(covered) / 400 < 0.98
    assert sum(one.interval[1] - one.interval[0] for one in found) / 400 == pytest.approx(
        2 * 1.96 * areas.std().item(), rel=0.1
    )


def test_classes_without_rows_are_left_out() -> None:
    scores, truth = sample(0)
    both = torch.stack([truth[:, 0], torch.zeros(len(truth), dtype=torch.bool)], dim=1)
    assert area(scores[:, :2], both) == area(scores[:, :1], truth[:, :1])
    assert area(scores[:, :1], both[:, 1:]).interval == (0.0, 1.0)
