"""Audit of a mechanism in one run: coins, scores, guesses, and the least epsilon beside the claimed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.audit.one_run import Guesses, least_of_any, least_of_gaussian

_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)  # of the canaries that are guessed
_PILOT = 0.2  # of the canaries, on which the share is chosen
_FEWEST = 100


@dataclass(frozen=True)
class Audited:
    """A mechanism under audit.

    Args:
        name: of the mechanism and its amount.
        epsilon: claimed, for one canary over everything that `scores` looks at; None if nothing is claimed.
        delta: of the claim.
        scores: releases every canary with one of two neighbouring values, and says what the attacker makes of it:
            coins, bool (n,), True for the second value -> float64 (n,), the larger the likelier the second value.
            Everything between belongs to the audit: call the code that a run calls.
        gaussian: True if a canary's scores are normal, with one deviation, and independent of other canaries.
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
        mechanism: its name.
        claimed, delta: the claim.
        guesses: those that gave the bound.
        accuracy: share of all canaries that are guessed right without abstention.
        least: the least epsilon of any mechanism with these guesses.
        least_gaussian: the least of a Gaussian mechanism; None for others.
        confidence: of each bound.
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
        """True if a bound exceeds the claim."""
        return self.claimed is not None and max(self.least, self.least_gaussian or 0.0) > self.claimed


def audit(audited: Audited, canaries: int, seed: int, confidence: float = 0.95) -> AuditResult:
    """Audits a mechanism.

    A fifth of the canaries decides how many of the others are guessed: those with the most extreme scores. Scores are
    compared with the middle of that fifth's two means.

    Args:
        canaries: their number; the largest bound that can be found grows with its logarithm.
        seed: of the coins. The mechanism's own noise is as it is.
        confidence: of each bound.

    Raises:
        InputError: there are too few canaries.
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
    """Between the means of both kinds; infinite scores, which decide alone, are left out."""
    kinds = [scores[kind & scores.isfinite()] for kind in (coins, ~coins)]
    return sum(float(kind.mean()) for kind in kinds) / 2 if all(map(len, kinds)) else 0.0


def _guess(scores: Tensor, coins: Tensor, share: float) -> Guesses:
    made = max(1, round(share * len(scores)))
    surest = scores.abs().topk(made).indices
    return Guesses(len(scores), made, int(((scores[surest] > 0) == coins[surest]).sum()))
