"""The least epsilon that an attack's success allows, with confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import beta


@dataclass(frozen=True)
class Counts:
    """Counts of an attacker's "member" verdicts.

    Args:
        hits: verdicts on the `members` rows, which are correct.
        alarms: verdicts on the `others` rows, which are wrong.
    """

    hits: int
    members: int
    alarms: int
    others: int

    @property
    def accuracy(self) -> float:
        """Balanced accuracy: the mean share of correct verdicts of either kind."""
        return (self.hits / self.members + 1 - self.alarms / self.others) / 2


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of a binomial's probability (Clopper and Pearson 1934)."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, successes, trials - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    return low, high


def least_epsilon(counts: Counts, delta: float, confidence: float = 0.95) -> float:
    """A lower bound of epsilon of any (epsilon, delta)-private mechanism, from an attack's counts.

    A test between neighbours has TPR <= e^epsilon FPR + delta, and likewise with both exchanged (Kairouz, Oh and
    Viswanath 2015); each rate is taken at the unfavourable end of its interval.

    Args:
        counts: of independent trials.
        delta: of the guarantee.
        confidence: of every interval.
    """
    hit, alarm = (
        clopper_pearson(*pair, confidence) for pair in ((counts.hits, counts.members), (counts.alarms, counts.others))
    )
    ratio = _ratio(hit[0] - delta, alarm[1])
    unsaid = _ratio(1 - alarm[1] - delta, 1 - hit[0])
    return max(ratio, unsaid, 0.0)


def _ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 0.0
