"""Fixed features of images: histograms of oriented gradients, for linear models with differential privacy.

Dalal and Triggs, "Histograms of oriented gradients for human detection" (2005), with overlapping cells; Tramèr and
Boneh, "Differentially private learning needs better features" (2021), on fixed features under DP-SGD. The features of
an image depend on nothing but the image, so they cost no epsilon. An empty border of one cell surrounds the image, so
that a pixel at its edge lies in as many cells as any other: half an image ends where strokes are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from colonnade.common.errors import InputError

_BINS, _CELL, _STRIDE = 9, 4, 2
_BORDER = _CELL  # pixels of zeros on every side
_NEAR = 3  # cells in a row and in a column, over which the contrast is normalised
_FLOOR = 1e-3  # added to the energy near a cell, so that empty places stay near zero


def oriented_gradients(images: Tensor) -> Tensor:
    """Features of unit length, float32 (rows, 9 r c), r = (height + 4) // 2 + 1 and c alike; zeros for zeros.

    `images` are of one channel, from 0 to 1: (rows, height, width), both at least 4.
    """
    if images.ndim != 3 or min(images.shape[1:]) < _CELL:
        raise InputError(
            f"images of shape {tuple(images.shape)}: expected (rows, height, width), of {_CELL} pixels at least",
            hint="give one channel, for example the mean of colours",
        )
    x = pad(images.float(), (_BORDER + 1,) * 4)
    across, down = x[:, 1:-1, 2:] - x[:, 1:-1, :-2], x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    turn = torch.atan2(down, across).remainder(math.pi) * (_BINS / math.pi)
    lower, rest = turn.floor(), turn - turn.floor()
    size, first = torch.hypot(across, down), lower.long().remainder(_BINS)
    votes = torch.zeros(len(x), _BINS, *size.shape[1:])
    votes.scatter_add_(1, first[:, None], (size * (1 - rest))[:, None])
    votes.scatter_add_(1, ((first + 1) % _BINS)[:, None], (size * rest)[:, None])
    cells = avg_pool2d(votes, _CELL, _STRIDE)
    energy = avg_pool2d((cells**2).sum(1, keepdim=True), _NEAR, 1, _NEAR // 2, count_include_pad=False)
    found = (cells / (_NEAR**2 * energy + _FLOOR).sqrt()).sqrt().flatten(1)
    unit: Tensor = found / found.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return unit
