"""Distances against scipy, and their estimates under noise against the rows before noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.special import erfinv
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.models.pairwise import Moments, Spread, distances

seeds = st.integers(0, 10**6)
sizes = st.tuples(st.integers(2, 20), st.integers(1, 9))


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@given(sizes, seeds, st.sampled_from([0.0, 1e3]))
def test_they_are_those_of_scipy_however_far_away_the_rows_are(size: tuple[int, int], seed: int, shift: float) -> None:
    h = normal(*size, seed=seed) + shift
    found = distances(h)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), pdist(h.double().numpy()), rtol=1e-5, atol=1e-7)


@given(sizes, seeds)
def test_their_gradient_is_that_of_differences(size: tuple[int, int], seed: int) -> None:
    h = normal(*size, seed=seed, dtype=torch.float64).requires_grad_()
    weights = normal(size[0] * (size[0] - 1) // 2, seed=seed + 1, dtype=torch.float64)
    one, other = torch.triu_indices(size[0], size[0], 1)
    plain = ((h[one] - h[other]).square().sum(1).sqrt() * weights).sum()
    (expected,) = torch.autograd.grad(plain, h)
    (found,) = torch.autograd.grad((distances(h) * weights).sum(), h)
    torch.testing.assert_close(found, expected)


def test_coinciding_rows_have_zero_gradient() -> None:
    h = torch.ones(4, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(distances(h).sum(), h)
    assert torch.equal(gradient, torch.zeros(4, 3))


@pytest.mark.parametrize("rows", [0, 1])
def test_less_than_two_rows_have_none(rows: int) -> None:
    h = torch.ones(rows, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(distances(h).sum(), h)
    assert distances(h).shape == (0,) and not gradient.any()


def test_a_spread_is_mean_and_deviation_over_all_pairs() -> None:
    h = normal(30, 5)
    d = pdist(h.double().numpy())
    spread = Spread.of(h)
    assert spread.mean == pytest.approx(d.mean()) and spread.deviation == pytest.approx(d.std())


@given(st.floats(0.01, 0.99), st.floats(0, 10), st.floats(0, 5))
def test_the_quantile_is_that_of_the_paper(p: float, mean: float, deviation: float) -> None:
    expected = mean + deviation * math.sqrt(2) * erfinv(2 * p - 1)
    assert Spread(mean, deviation).quantile(p) == pytest.approx(expected)


def test_the_diameter_is_the_quantile_that_the_paper_names() -> None:
    spread = Spread(mean=5.0, deviation=2.0)
    assert spread.diameter == 11 and spread.quantile(0.99865) == pytest.approx(11, abs=1e-4)


@given(sizes, seeds)
def test_without_noise_moments_are_those_of_the_rows(size: tuple[int, int], seed: int) -> None:
    h = normal(*size, seed=seed)
    squares = pdist(h.double().numpy()) ** 2
    found = Moments.released(h, 0.0)
    assert found.mean == pytest.approx(squares.mean()) and found.variance == pytest.approx(squares.var(), abs=1e-9)


@pytest.mark.parametrize(("rows", "noise"), [(5, 0.5), (5, 2.0), (40, 1.0)])
def test_through_noise_the_mean_of_many_releases_is_the_rows_own(rows: int, noise: float) -> None:
    """For few rows it fails without the factor (n - 2) / (n - 1): noise then moves all distances together."""
    h, releases = normal(rows, 6), 6000
    noises = noise * normal(releases, rows, 6, seed=1)
    estimates = [Moments.released(h + drawn, noise) for drawn in noises]
    found = np.array([(moments.mean, moments.variance) for moments in estimates])
    exact = Moments.released(h, 0.0)
    error = found.std(0) / math.sqrt(releases)
    assert abs(found[:, 0].mean() - exact.mean) < 4 * error[0]
    assert abs(found[:, 1].mean() - exact.variance) < 4 * error[1]
    if rows == 5:
        naive = (8 * noise**2 * exact.mean + 8 * 6 * noise**4) / (rows - 1)
        assert naive > 8 * error[1]  # so that its absence would be seen


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0])
def test_spread_before_noise_is_estimated_from_a_few_batches(noise: float) -> None:
    batches = [normal(128, 32, seed=seed) for seed in range(10)]
    estimates = [Moments.released(h + noise * normal(128, 32, seed=seed + 99), noise) for seed, h in enumerate(batches)]
    found = Moments.averaged(estimates).spread()
    spreads = [Spread.of(h) for h in batches]
    assert found.mean == pytest.approx(sum(spread.mean for spread in spreads) / 10, rel=0.01)
    assert found.deviation == pytest.approx(sum(spread.deviation for spread in spreads) / 10, rel=0.1)
    naive = Spread.of(batches[0] + noise * normal(128, 32, seed=99))
    assert abs(naive.mean - spreads[0].mean) > 0.4 * noise**2 * spreads[0].mean  # variance of the noise


@given(st.floats(0, 100), st.floats(0, 30))
def test_a_spread_comes_back_from_its_moments(mean: float, deviation: float) -> None:
    square = deviation**2
    moments = Moments(mean**2 + square, 4 * mean**2 * square + 2 * square**2)
    if mean < deviation:  # there the two solutions meet, and rounding is magnified
        assert moments.spread().quantile(0.5) == pytest.approx(mean, abs=1e-3 * deviation + 1e-9)
    else:
        assert moments.spread().mean == pytest.approx(mean) and moments.spread().deviation == pytest.approx(deviation)


@given(st.floats(-10, 10), st.floats(-10, 300))
def test_whatever_the_estimates_are_a_spread_is_none_below_zero(mean: float, variance: float) -> None:
    spread = Moments(mean, variance).spread()
    assert spread.mean >= 0 and spread.deviation >= 0
    assert spread.mean**2 + spread.deviation**2 == pytest.approx(max(mean, 0), abs=1e-9)


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (4,)])
def test_less_than_two_rows_are_refused(shape: tuple[int, ...]) -> None:
    for make in (Spread.of, lambda h: Moments.released(h, 0.1)):
        with pytest.raises(InputError, match="at least two rows"):
            make(torch.ones(shape))
