"""Area under the receiver operating characteristic, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.stats import norm, rankdata
from torch import Tensor


@dataclass(frozen=True)
class Area:
    """An area under the curve, the mean over classes where there are several; .5 is chance.

    Args:
        auc: the area.
        interval: of 95 %.
    """

    auc: float
    interval: tuple[float, float]


def area(scores: Tensor, positive: Tensor, confidence: float = 0.95) -> Area:
    """Mean area over classes. A row counts once however many classes there are.

    The variance is that of DeLong, DeLong and Clarke-Pearson 1988: each row's placement among the rows of the other
    kind, here summed over classes, since one row moves the areas of all of them.

    Args:
        scores: the larger, the likelier positive, (rows, classes).
        positive: bool (rows, classes). Classes without positive rows, or without others, are left out.
    """
    kinds = [positive.sum(0), (~positive).sum(0)]
    there = (kinds[0] > 0) & (kinds[1] > 0)
    scores, positive = scores[:, there].double(), positive[:, there]
    (rows, classes), of_one, of_other = scores.shape, positive.sum(0), (~positive).sum(0)
    if not classes:
        return Area(0.5, (0.0, 1.0))
    ranks = _ranks(scores)
    own = torch.where(positive, _within(scores, positive), _within(scores, ~positive))
    below = ranks - own  # rows of the other kind that lie below, ties half
    placed = torch.where(positive, below / of_other, 1 - below / of_one)
    found = (placed * positive).sum(0) / of_one
    share = torch.where(positive, rows / of_one, rows / of_other)
    moved = ((placed - found) * share).mean(1)
    spread = math.sqrt(moved.square().sum().item() / rows**2)
    mean, reach = found.mean().item(), float(norm.ppf((1 + confidence) / 2)) * spread
    return Area(mean, (max(mean - reach, 0.0), min(mean + reach, 1.0)))


def _ranks(scores: Tensor) -> Tensor:
    return torch.from_numpy(rankdata(scores.numpy(), axis=0))


def _within(scores: Tensor, kind: Tensor) -> Tensor:
    """Ranks among the rows of a kind, column by column; those of other rows mean nothing."""
    found = torch.zeros_like(scores)
    for column in range(scores.shape[1]):
        rows = kind[:, column]
        found[rows, column] = _ranks(scores[rows, column])
    return found
