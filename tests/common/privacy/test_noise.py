"""Noise: normal, independent, never the same twice unless seeded."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from colonnade.common.privacy.noise import secure_normals, seeded_normals


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3), (2, 3, 5)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    made = secure_normals(torch.Size(shape))
    assert made.shape == shape and made.dtype == torch.float64 and bool(torch.isfinite(made).all())


def test_it_is_normal_and_its_halves_are_independent() -> None:
    drawn = secure_normals(torch.Size((1_000_000,)))
    assert stats.kstest(drawn[:100_000].numpy(), "norm").pvalue > 1e-6
    assert abs(drawn.mean()) < 0.006 and abs(drawn.var() - 1) < 0.01
    assert abs(stats.kurtosis(drawn.numpy())) < 0.04
    first, second = drawn.chunk(2)  # both of every Box-Muller pair
    assert abs((first * second).mean()) < 0.01
    assert abs((first.square() * second.square()).mean() - 1) < 0.02


def test_no_draw_repeats() -> None:
    torch.manual_seed(0)
    one = secure_normals(torch.Size((1000,)))
    torch.manual_seed(0)
    assert not bool((one == secure_normals(torch.Size((1000,)))).any())


def test_seeded_noise_does() -> None:
    one, two, other = (seeded_normals(torch.Generator().manual_seed(seed))(torch.Size((5, 2))) for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)
