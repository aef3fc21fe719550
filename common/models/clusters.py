"""Fuzzy c-means: clustering with graded memberships.

Source: Bezdek, Ehrlich, Full, "FCM: The fuzzy c-means clustering algorithm" (1984), as VFL-AFE uses it (Eq. 7). For
points x_j, centres v_i and fuzziness m > 1 it descends sum_ij u_ij^m |x_j - v_i|^2 by

    u_ij ~ |x_j - v_i|^(-2 / (m - 1)), normalised over i          v_i = sum_j u_ij^m x_j / sum_j u_ij^m

in alternation. Points are scaled by the root mean square of their entries, so that gradients of 1e-6 cluster as points
of 1 do. Points must be near the origin: far from it, rounding of products removes differences.

A gradient's length reflects the error of a row's prediction, its direction the true class. Later in training most are
short and a few long, so that clusters of the gradients themselves follow length; at unit length
(`torch.nn.functional.normalize`) they follow class.

A contrastive loss without labels separates embeddings of different clusters. Source: VFL-AFE, Eq. 8, over the n rows
whose cluster I_j is certain enough, w_jk = 1 where I_j = I_k and else 0. As printed, without a minus, its minimum is
where all rows coincide; the paper's text requires different clusters to be more distinct. This module therefore
minimises

    L = -beta / n^2 sum_jk (1 - w_jk) |h_j - h_k|
    dL/dh_j = -2 beta / n^2 sum_k (1 - w_jk) (h_j - h_k) / |h_j - h_k|

which is -2 beta / n^2 (h_j sum_k B_jk - sum_k B_jk h_k) with B_jk = (1 - w_jk) / |h_j - h_k|. It has no lower bound:
the norm of embeddings must be clipped or scaled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.errors import InputError

_LEAST = 1e-12  # squared distances in those units: closer points lie on the centre
_NOTHING = 1e-150  # all points are 0


@dataclass(frozen=True)
class Clusters:
    """Memberships u of n points, float32 (n, C), whose rows sum to 1, and centres v, float32 (C, d), in the points'
    units.
    """

    memberships: Tensor
    centres: Tensor

    def assignments(self) -> tuple[Tensor, Tensor]:
        """Every point's cluster of highest membership, int64 (n,), and that membership, float32 (n,)."""
        confidences, ids = self.memberships.max(1)
        return ids, confidences


@torch.no_grad()
def fuzzy_c_means(
    points: Tensor,
    clusters: int,
    *,
    fuzziness: float = 2.0,
    tolerance: float = 1e-3,
    iterations: int = 20,
    start: Tensor | None = None,
) -> Clusters:
    """Clusters points, finite (n, d). Clusters have no particular order; equal points have equal memberships.

    Args:
        clusters: C, at most n.
        fuzziness: m, from 1.1; 2 is usual, and the fastest.
        tolerance: iteration ends when no coordinate of a centre moves further, in scaled units.
        start: centres (C, d), such as an earlier batch's; None for points far apart, always the same.
    """
    _check(points, clusters, fuzziness)
    wide = points.detach().double()
    unit = wide.square().mean().sqrt_().clamp_(min=_NOTHING)
    x = wide / unit
    squares = x.square().sum(1)
    centres = _far_apart(x, squares, clusters) if start is None else start.double() / unit
    for _ in range(iterations):
        weights = _memberships(x, squares, centres, fuzziness).pow_(fuzziness)
        before, centres = centres, (weights @ x).div_(weights.sum(1, keepdim=True))
        if torch.dist(centres, before, p=torch.inf) <= tolerance:
            break
    memberships = _memberships(x, squares, centres, fuzziness)
    return Clusters(memberships.T.float(), (centres * unit).float())


def _memberships(x: Tensor, squares: Tensor, centres: Tensor, fuzziness: float) -> Tensor:
    """u, (C, n): the long side last, along which sums and products are fast."""
    apart = torch.addmm(squares, centres, x.T, alpha=-2).add_(centres.square().sum(1, keepdim=True))
    nearness = apart.clamp_(min=_LEAST).pow_(-1 / (fuzziness - 1))
    return nearness.div_(nearness.sum(0))


def _far_apart(x: Tensor, squares: Tensor, clusters: int) -> Tensor:
    """Points (C, d): the longest one, then each time the one farthest from all chosen."""
    chosen = [int(squares.argmax())]
    apart = torch.full_like(squares, torch.inf)
    while len(chosen) < clusters:
        latest = chosen[-1]
        apart = torch.minimum(apart, torch.addmv(squares, x, x[latest], alpha=-2).add_(squares[latest]))
        chosen.append(int(apart.argmax()))
    return x[chosen]


def _check(points: Tensor, clusters: int, fuzziness: float) -> None:
    if points.dim() != 2 or len(points) < clusters:
        raise InputError(
            f"{clusters} clusters need as many points, got {tuple(points.shape)}",
            hint="there are more classes than rows in a batch: give the federation a larger one",
        )
    if fuzziness < 1.1:
        raise InputError(f"a fuzziness of {fuzziness} is too close to 1", hint="give 1.1 or more, usually 2")


_COINCIDENT = 1e-14  # of the largest |h|^2: closer rows count as equal, within the rounding of products


def contrast(h: Tensor, ids: Tensor, confident: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """L, (), and dL/dh, (rows, l), of h's type. Both are 0 where fewer than two clusters have confident rows.

    Rows outside the mask `confident`, bool (rows,), have gradient 0; equal pairs contribute nothing. `ids` are I, int64
    (rows,).
    """
    chosen = confident.nonzero().squeeze(1)
    gradient = torch.zeros_like(h, requires_grad=False)
    if not len(chosen):
        return h.new_zeros(()), gradient
    x = h.detach()[chosen].double()
    x = x - x.mean(0)  # reduces rounding in products
    d = _across(x, ids[chosen])
    inverses = d.reciprocal().masked_fill_(d == 0, 0.0)
    weight = -beta / len(chosen) ** 2
    slopes = (x * inverses.sum(1, keepdim=True)).sub_(inverses @ x).mul_(2 * weight)
    gradient[chosen] = slopes.to(h.dtype)
    return (weight * d.sum()).to(h.dtype), gradient


def _across(x: Tensor, ids: Tensor) -> Tensor:
    """(1 - w_jk) |x_j - x_k|, float64 (n, n); exactly 0 where rows coincide."""
    norms = x.square().sum(1)
    squares = torch.addmm(norms, x, x.T, alpha=-2).add_(norms.unsqueeze(1))
    nothing = (ids == ids.unsqueeze(1)).logical_or_(squares <= _COINCIDENT * norms.max())
    return squares.masked_fill_(nothing, 0.0).sqrt_()
