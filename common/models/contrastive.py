"""A contrastive loss without labels, which separates embeddings of different clusters.

Source: VFL-AFE, Eq. 8, over the n rows whose cluster I_j is certain enough, w_jk = 1 where I_j = I_k and else 0. As
printed, without a minus, its minimum is where all rows coincide; the paper's text requires different clusters to be
more distinct. This module therefore minimises

    L = -beta / n^2 sum_jk (1 - w_jk) |h_j - h_k|
    dL/dh_j = -2 beta / n^2 sum_k (1 - w_jk) (h_j - h_k) / |h_j - h_k|

which is -2 beta / n^2 (h_j sum_k B_jk - sum_k B_jk h_k) with B_jk = (1 - w_jk) / |h_j - h_k|. It has no lower bound:
the norm of embeddings must be clipped or scaled.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-14  # of the largest |h|^2: closer rows count as equal, within the rounding of products


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
    nothing = (ids == ids.unsqueeze(1)).logical_or_(squares <= _LEAST * norms.max())
    return squares.masked_fill_(nothing, 0.0).sqrt_()
