"""Audit of VFL-AFE's rescaling, `rescale: paper`, which Theorem 3.6 claims to cost nothing.

The theorem (Mi et al. 2023) keeps the epsilon of the clip and only divides delta by p1 p2, the probabilities that the
data bound their neighbours and that mu + 3 sd bounds their distances. But the factor 2t / (mu + 3 sd) is computed from
the rows that it protects, so that one row moves all others of its batch, and rows may leave the ball.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade.common.privacy.noise import Normals, secure_normals
from colonnade.common.privacy.rescale import Rescale
from colonnade.common.privacy.shaped import Shape
from colonnade_lab.attacks.audit.canaries import Audited

NORMAL = 0.9987
"""p2 of mu + 3 sd; p1 is taken as 1, which is in the theorem's favour."""


@dataclass(frozen=True)
class Neighbours:
    """A batch of embeddings before the clip, (n, width), and a replacement of its first row, (width,)."""

    rows: Tensor
    other: Tensor
    name: str


def rescaled(
    pair: Neighbours, t: float, sigma: float, delta: float, *, shrink: bool = True, normals: Normals = secure_normals
) -> Audited:
    """Audits one training release of the whole batch under `rescale: paper`; a canary is the first row of a batch.

    Every canary has its own batch, with the same other rows, which the attacker knows. Its score is the exact
    log-likelihood ratio of the whole release.

    Args:
        t: half the diameter of the ball.
        sigma: noise multiplier: N(0, 4 sigma^2 t^2) in every entry.
        delta: of the clip's guarantee.
        shrink: False to keep factors at 1 or above.
    """
    first = pair.rows.double()
    second = torch.cat([pair.other.double()[None], first[1:]])
    means = [_shaped(rows, t, sigma, shrink=shrink) for rows in (first, second)]
    apart, noise = means[1] - means[0], 2 * sigma * t

    def scores(coins: Tensor) -> Tensor:
        found = torch.zeros(len(coins), dtype=torch.float64)
        for place, coin in enumerate(coins.tolist()):
            sent = means[int(coin)] + noise * normals(apart.shape)
            found[place] = ((sent - (means[0] + means[1]) / 2) * apart).sum() / noise**2
        return found

    claimed = gaussian_epsilon(sigma, delta)
    name = f"rescale: paper, sigma {sigma:g}, {pair.name}"
    return Audited(name, claimed, delta / NORMAL, scores, gaussian=True)


def exact_epsilon(pair: Neighbours, t: float, sigma: float, delta: float, *, shrink: bool = True) -> float:
    """Returns the exact epsilon at delta / p2 between two batches, from the distance of their releases."""
    first = pair.rows.double()
    second = torch.cat([pair.other.double()[None], first[1:]])
    one, other = (_shaped(rows, t, sigma, shrink=shrink) for rows in (first, second))
    mu = float((one - other).norm()) / (2 * sigma * t)
    return gaussian_epsilon(1 / mu, delta / NORMAL) if mu > 0 else 0.0


def _shaped(rows: Tensor, t: float, sigma: float, *, shrink: bool) -> Tensor:
    """Clips a training batch, (n, width), and rescales it by its own distances, with the code of a run."""
    shape = Shape("ball", t, Rescale("paper", t, 2 * sigma * t, shrink=shrink), leaves=True)
    made: Tensor = shape.train()(rows)
    return made
