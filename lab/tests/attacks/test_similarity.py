"""SSIM against its definition, window by window in numpy, and against known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.inversion import ssim

pytestmark = pytest.mark.slow


def by_hand(a: np.ndarray, b: np.ndarray, span: float) -> float:
    """Wang et al. 2004, Eq. 13, on every 7 x 7 window of one channel; sample variances."""
    side = min(7, *a.shape)
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for top in range(a.shape[0] - side + 1):
        for left in range(a.shape[1] - side + 1):
            x, y = (image[top : top + side, left : left + side].ravel() for image in (a, b))
            both = np.cov(x, y, ddof=1)
            numerator = (2 * x.mean() * y.mean() + c1) * (2 * both[0, 1] + c2)
            found.append(numerator / ((x.mean() ** 2 + y.mean() ** 2 + c1) * (both[0, 0] + both[1, 1] + c2)))
    return float(np.mean(found))


@pytest.mark.parametrize("shape", [(7, 7), (12, 9), (28, 14), (5, 20)])
def test_it_is_the_definitions(shape: tuple[int, int]) -> None:
    a, b = torch.rand(2, 3, 1, *shape, generator=generator("images"), dtype=torch.float64)
    expected = [by_hand(x[0].numpy(), y[0].numpy(), 1.0) for x, y in zip(a, b, strict=True)]
    assert ssim(a, b, 1.0).tolist() == pytest.approx(expected)


@given(st.integers(0, 99), st.floats(0.1, 255))
def test_an_image_is_like_itself_and_the_measure_has_no_unit(seed: int, span: float) -> None:
    a, b = torch.rand(2, 2, 3, 10, 8, generator=generator("pair", seed), dtype=torch.float64)
    assert ssim(a, a, 1.0).tolist() == pytest.approx([1.0, 1.0])
    torch.testing.assert_close(ssim(a * span, b * span, span), ssim(a, b, 1.0))
    torch.testing.assert_close(ssim(b, a, 1.0), ssim(a, b, 1.0))
    assert (ssim(a, b, 1.0) < 0.9).all()


def test_a_negative_is_unlike_and_flat_images_compare_by_their_brightness() -> None:
    a = torch.rand(1, 1, 9, 9, generator=generator("one"), dtype=torch.float64)
    assert ssim(a, 1 - a, 1.0).item() < 0
    flat = torch.full((1, 1, 9, 9), 0.2), torch.full((1, 1, 9, 9), 0.4)
    assert ssim(*flat, 1.0).item() == pytest.approx((2 * 0.08 + 1e-4) / (0.04 + 0.16 + 1e-4), rel=1e-5)
    assert not math.isnan(ssim(torch.zeros(1, 1, 9, 9), torch.zeros(1, 1, 9, 9), 1.0).item())
