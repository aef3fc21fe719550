"""The gradient at a cut layer from differences of the loss: Eq. 2 of VFL-CZOFO (Wang et al., 2023)."""

from __future__ import annotations

import torch
from torch import Tensor


def estimate(slopes: Tensor, u: Tensor, factor: float) -> Tensor:
    """(phi / q) sum_j (delta^j / mu) u_i^j: estimated gradient of the batch's mean loss at h, float32 (rows, width).

    Its expectation is the gradient, up to terms of the order of mu.

    Args:
        slopes: delta^j / mu of the batch's mean loss, float32 (1, q); or delta_i^j / mu of every row's own loss, (rows,
            q).
        u: float32 (rows, q, width), every u_i^j with E[u u'] = I / phi.
        factor: phi.
    """
    rows, q, _ = u.shape
    if len(slopes) == 1:
        return torch.matmul(slopes[0], u).mul_(factor / q)
    return torch.bmm(slopes.unsqueeze(1), u).squeeze(1).mul_(factor / (q * rows))


def spread(slopes: Tensor, u: Tensor, factor: float) -> float:
    """tr(Psi): variance of one direction's estimate of a row's gradient, from the q samples.

    The sample variance of phi (delta^j / mu) u_i^j over j, summed over a row's entries and averaged over rows; with the
    batch's mean loss, scaled by the number of rows, since a row's own gradient is that many times the mean's.

    Args:
        slopes, u, factor: as above, with q >= 2 drawn independently.
    """
    rows, q, _ = u.shape
    mean = estimate(slopes, u, factor).double() * rows  # (rows, width)
    scale = factor * (rows if len(slopes) == 1 else 1)
    squares = (u.square().sum(2).double() * slopes.double().square()).sum() * scale**2
    return float(squares - q * mean.square().sum()) / (q - 1) / rows
