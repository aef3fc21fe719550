"""Audit of a mechanism in one run: random coins, scores, guesses, and the least epsilon compared with the claim.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run". A coin gives every canary one of two
values, and the attacker guesses some of the coins. If the mechanism is (epsilon, delta)-private, the number of correct
guesses among r exceeds v with at most the probability that a binomial of r trials at e^epsilon / (1 + e^epsilon) does,
plus a term in delta (their Theorem 5.2). The theorem needs no independence of the canaries; the neighbouring relation
replaces one canary's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom, norm
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.accountant import gaussian_epsilon
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


_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)  # candidate shares of canaries to guess
_PILOT = 0.2  # share of the canaries that chooses among these
_FEWEST = 100


@dataclass(frozen=True)
class Audited:
    """A mechanism under audit.

    Args:
        epsilon: claim for one canary over all releases that `scores` looks at; None if nothing is claimed.
        scores: maps coins, bool (n,), to float64 (n,). It releases every canary with one of two neighbouring values
            (True
            for the second) and returns the attacker's scores, larger where the second value is likelier. It must call
            the code that a run calls.
        gaussian: True if canaries' scores are normal with one deviation and independent of each other.
    """

    name: str
    epsilon: float | None
    delta: float
    scores: Callable[[Tensor], Tensor]
    gaussian: bool = False


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit.

    Args:
        guesses: the guesses that gave the bound.
        accuracy: share of all canaries that are guessed right without abstention.
        least: lower bound of epsilon for any mechanism with these guesses.
        least_gaussian: lower bound for a Gaussian mechanism; None for others.
    """

    mechanism: str
    claimed: float | None
    delta: float
    guesses: Guesses
    accuracy: float
    least: float
    least_gaussian: float | None
    confidence: float

    @property
    def refuted(self) -> bool:
        return self.claimed is not None and max(self.least, self.least_gaussian or 0.0) > self.claimed


def audit(audited: Audited, canaries: int, seed: int, confidence: float = 0.95) -> AuditResult:
    """Audits a mechanism.

    A fifth of the canaries decides how many of the others are guessed: those with the most extreme scores. Scores are
    compared with the midpoint of that fifth's two class means.

    Args:
        canaries: number of canaries; the largest bound that can be found grows with its logarithm.
        seed: of the coins. The mechanism's own noise is not seeded.
    """
    if canaries < _FEWEST:
        raise InputError(f"{canaries} canaries: an audit needs at least {_FEWEST}", hint="the default is 20000")
    coins = torch.rand(canaries, generator=generator("canaries", seed), dtype=torch.float64) < 0.5
    scores = audited.scores(coins).double()
    pilot, rest = slice(0, round(_PILOT * canaries)), slice(round(_PILOT * canaries), canaries)
    middle = _middle(scores[pilot], coins[pilot])
    share = max(_SHARES, key=lambda one: least_of_any(_guess(scores[pilot] - middle, coins[pilot], one), 0.0))
    made, every = (_guess(scores[rest] - middle, coins[rest], one) for one in (share, 1.0))
    gaussian = least_of_gaussian(every, audited.delta, confidence) if audited.gaussian else None
    return AuditResult(
        audited.name, audited.epsilon, audited.delta, made, every.right / every.made,
        least=least_of_any(made, audited.delta, confidence), least_gaussian=gaussian, confidence=confidence,
    )  # fmt: skip


def _middle(scores: Tensor, coins: Tensor) -> float:
    """Returns the midpoint of both classes' means; infinite scores, which decide alone, do not count."""
    kinds = [scores[kind & scores.isfinite()] for kind in (coins, ~coins)]
    return sum(float(kind.mean()) for kind in kinds) / 2 if all(map(len, kinds)) else 0.0


def _guess(scores: Tensor, coins: Tensor, share: float) -> Guesses:
    made = max(1, round(share * len(scores)))
    surest = scores.abs().topk(made).indices
    return Guesses(len(scores), made, int(((scores[surest] > 0) == coins[surest]).sum()))
