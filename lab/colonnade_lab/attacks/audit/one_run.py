"""The least epsilon that is consistent with guesses about many canaries of one run: Steinke, Nasr and Jagielski 2023.

"Privacy Auditing with One (1) Training Run". A coin gives every canary one of two values, and the attacker guesses some
of the coins. If the mechanism is (epsilon, delta)-private, the number of correct guesses among r exceeds v with at most
the probability that a binomial of r trials at e^epsilon / (1 + e^epsilon) does, plus a term in delta (their Theorem
5.2). The theorem needs no independence of the canaries; the neighbouring relation replaces one canary's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm

from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade_lab.attacks.bounds import clopper_pearson

_LARGEST = 64.0  # epsilon


@dataclass(frozen=True)
class Guesses:
    """Numbers of canaries (m), of guesses made (r; the attacker abstained on the others) and of right ones (v)."""

    canaries: int
    made: int
    right: int


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of at least as many correct guesses under (epsilon, delta)-privacy (Theorem 5.2)."""
    r, v = guesses.made, guesses.right
    share = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(v - 1, r, share))
    if delta == 0 or v == 0:
        return min(beta, 1.0)
    between = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, share))  # P(v - i <= binomial < v), for i = 1 .. v
    alpha = float((between / np.arange(1, v + 1)).max())
    return min(beta + 2 * guesses.canaries * delta * alpha, 1.0)


def least_of_any(guesses: Guesses, delta: float, confidence: float = 0.95) -> float:
    """Returns a lower bound of epsilon for any mechanism with these guesses; 0 if they show nothing."""
    return _largest_refuted(lambda epsilon: p_value(guesses, epsilon, delta) < 1 - confidence)


def least_of_gaussian(guesses: Guesses, delta: float, confidence: float = 0.95) -> float:
    """Returns a lower bound of epsilon for independent normal noise on every canary; it is far tighter.

    Without abstention a guess is right with probability at most Phi(mu / 2) (Dong, Roth and Su 2022), where mu is the
    distance of a canary's two values in standard deviations, over all of its releases. The lower end of mu's one-sided
    interval is converted exactly to an epsilon at `delta`.
    """
    if guesses.made != guesses.canaries:
        raise ValueError("the bound for Gaussian noise needs a guess about every canary")
    low, _ = clopper_pearson(guesses.right, guesses.made, 2 * confidence - 1)
    if low <= 0.5:
        return 0.0
    mu = 2 * float(norm.ppf(min(low, 1 - 1e-12)))
    return gaussian_epsilon(1 / mu, delta)


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
