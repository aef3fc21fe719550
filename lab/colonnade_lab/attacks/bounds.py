"""Success of an attack with confidence: intervals, areas under the curve, and lower bounds of epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.stats import beta, norm, rankdata
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """Counts of an attacker's "member" verdicts: `hits` on members (correct), `alarms` on others (wrong)."""

    hits: int
    members: int
    alarms: int
    others: int

    @property
    def accuracy(self) -> float:
        """Balanced accuracy: the mean of the correct shares of members and of others."""
        return (self.hits / self.members + 1 - self.alarms / self.others) / 2


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns a confidence interval of a binomial probability (Clopper and Pearson 1934)."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, successes, trials - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    return low, high


def least_epsilon(counts: Counts, delta: float, confidence: float = 0.95) -> float:
    """Returns a lower bound of epsilon for an (epsilon, delta)-private mechanism from an attack's counts.

    A test between neighbours has TPR <= e^epsilon FPR + delta, and likewise with both exchanged (Kairouz, Oh and
    Viswanath 2015). Each rate is taken at the unfavourable end of its interval.
    """
    hit, alarm = (
        clopper_pearson(*pair, confidence) for pair in ((counts.hits, counts.members), (counts.alarms, counts.others))
    )
    ratio = _ratio(hit[0] - delta, alarm[1])
    unsaid = _ratio(1 - alarm[1] - delta, 1 - hit[0])
    return max(ratio, unsaid, 0.0)


def _ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 0.0


@dataclass(frozen=True)
class Area:
    """Area under the curve, averaged over classes if there are several (.5 is chance), with its 95 % interval."""

    auc: float
    interval: tuple[float, float]


def area(scores: Tensor, positive: Tensor, confidence: float = 0.95) -> Area:
    """Returns the mean area over classes. A row counts once, whatever the number of classes.

    The variance is that of DeLong, DeLong and Clarke-Pearson 1988: each row's placement among the rows of the other
    kind, summed over classes, since one row moves all of their areas.

    Args:
        scores: larger where positive is likelier, (rows, classes).
        positive: bool (rows, classes). Classes whose rows are all positive or all negative do not count.
    """
    kinds = [positive.sum(0), (~positive).sum(0)]
    there = (kinds[0] > 0) & (kinds[1] > 0)
    scores, positive = scores[:, there].double(), positive[:, there]
    (rows, classes), of_one, of_other = scores.shape, positive.sum(0), (~positive).sum(0)
    if not classes:
        return Area(0.5, (0.0, 1.0))
    ranks = _ranks(scores)
    own = torch.where(positive, _within(scores, positive), _within(scores, ~positive))
    below = ranks - own  # lower-ranked rows of the other kind; ties count half
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
    """Returns ranks among the rows of a kind, by column; entries of other rows are meaningless."""
    found = torch.zeros_like(scores)
    for column in range(scores.shape[1]):
        rows = kind[:, column]
        found[rows, column] = _ranks(scores[rows, column])
    return found
