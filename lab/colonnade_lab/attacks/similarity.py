"""Similarity of images: SSIM (Wang, Bovik, Sheikh and Simoncelli 2004)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_SIDE = 7  # side of the uniform window; smaller for smaller images
_K1, _K2 = 0.01, 0.03


def ssim(a: Tensor, b: Tensor, span: float) -> Tensor:
    """Mean structural similarity of every pair of images, (n, channels, height, width), as float64 (n,); 1 if equal.

    Windows lie wholly inside the image. Variances are sample variances (divided by pixels minus one). `span` is the
    largest minus the smallest possible pixel.
    """
    side = min(_SIDE, *a.shape[-2:])
    a, b = a.double(), b.double()

    def mean(x: Tensor) -> Tensor:
        return functional.avg_pool2d(x, side, stride=1)

    unbiased = side * side / max(side * side - 1, 1)
    mean_a, mean_b = mean(a), mean(b)
    variances = unbiased * (mean(a * a) - mean_a.square() + mean(b * b) - mean_b.square())
    covariance = unbiased * (mean(a * b) - mean_a * mean_b)
    c1, c2 = (_K1 * span) ** 2, (_K2 * span) ** 2
    likeness = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return torch.flatten(likeness / ((mean_a.square() + mean_b.square() + c1) * (variances + c2)), 1).mean(1)
