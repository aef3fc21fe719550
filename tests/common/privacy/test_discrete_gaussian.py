"""Noise is normal and never the same twice unless seeded; discrete Gaussians are held against exact probabilities."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.stats import binomtest, chisquare, kstest, norm

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.privacy.laplace import bernoulli_exp
from colonnade.common.privacy.noise import secure_bytes, secure_normals, seeded_bytes, seeded_normals
from colonnade.common.privacy.sum_noise import LARGEST, discrete_gaussian


def drawn(count: int, sigma: int, seed: int) -> np.ndarray:
    return discrete_gaussian(count, sigma, random.Random(seed).randbytes)


def exact(sigma: int, reach: int) -> list[float]:
    """Probabilities of -reach .. reach by decimal arithmetic of 40 digits: the definition, with its own normaliser."""
    with localcontext(prec=40):
        weight = [(-Decimal(x * x) / Decimal(2 * sigma * sigma)).exp() for x in range(20 * sigma)]
        total = weight[0] + 2 * sum(weight[1:], Decimal(0))
        return [float(weight[abs(x)] / total) for x in range(-reach, reach + 1)]


@pytest.mark.parametrize("sigma", [1, 2, 5, 17])
def test_whole_numbers_come_as_often_as_they_should(sigma: int) -> None:
    count, reach = 400_000, 3 * sigma
    x, chances = drawn(count, sigma, sigma), exact(sigma, reach)
    inner = [int((x == value).sum()) for value in range(-reach, reach + 1)]
    counts, expected = [*inner, count - sum(inner)], np.array([*chances, 1 - sum(chances)]) * count
    assert chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [300, 2**16 + 1, 2**20, LARGEST])
def test_a_wide_one_has_a_normals_distribution_and_moments(sigma: int) -> None:
    x = drawn(200_000, sigma, sigma) / sigma
    assert kstest(x, norm.cdf).pvalue > 1e-3
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):  # spread: variance of x^power
        assert abs((x**power).mean() - moment) < 4.5 * (spread / len(x)) ** 0.5


def test_its_coin_falls_with_the_probability_of_the_exponential() -> None:
    for numerator, n in ((0, 1), (1, 3), (3, 3), (7, 3), (10**17, 4 * 10**16)):
        tosses = bernoulli_exp(np.full(100_000, numerator), n, random.Random(numerator).randbytes)
        assert binomtest(int(tosses.sum()), len(tosses), float(np.exp(-numerator / n))).pvalue > 1e-3


def test_neighbours_in_a_row_of_draws_are_independent() -> None:
    x = drawn(400_000, 50, 3) / 50
    for lag in (1, 2, 7):
        assert abs((x[lag:] * x[:-lag]).mean()) < 4.5 / len(x) ** 0.5


def test_draws_are_new_each_time_unless_a_generator_is_given() -> None:
    one, two = (discrete_gaussian(1000, 1000, secure_bytes()) for _ in range(2))
    assert not np.array_equal(one, two)
    seeded: Callable[[], np.ndarray] = lambda: discrete_gaussian(1000, 1000, seeded_bytes(generator("noise", 3, "a")))  # noqa: E731
    assert np.array_equal(seeded(), seeded())


def test_a_generators_bytes_go_on_from_its_state() -> None:
    draws = generator("noise", 3, "a")
    state = draws.get_state()
    first, second = seeded_bytes(draws)(13), seeded_bytes(draws)(13)
    assert len(first) == 13 and first != second
    assert seeded_bytes(torch.Generator().set_state(state))(13) == first


@pytest.mark.parametrize("sigma", [0, -3, LARGEST + 1])
def test_a_sigma_that_integers_of_64_bits_cannot_hold_is_refused(sigma: int) -> None:
    with pytest.raises(InputError, match=rf"a discrete Gaussian of sigma = {sigma}"):
        discrete_gaussian(3, sigma, secure_bytes())


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
