"""The divergence from a normal distribution against scipy, known values and differences in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import digamma
from scipy.stats import differential_entropy
from torch import Tensor

from colonnade.common.models.pairwise import divergence, normality

MANY = 2016  # distances of 64 rows
NORMAL = 0.5 * math.log(2 * math.pi * math.e)  # the entropy of N(0, 1)
seeds = st.integers(0, 10**6)


def source(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=source(seed))


@given(st.integers(5, 60), seeds)
def test_it_is_vasiceks_entropy_without_its_bias_for_even_draws(count: int, seed: int) -> None:
    """scipy has the plain estimate, the bias is as Wieczorkowski and Grzegorzewski print it."""
    values = normal(count, seed=seed)
    m = min(int(math.sqrt(count) + 0.5), (count - 1) // 2)
    plain = differential_entropy(values.numpy(), window_length=m, method="vasicek")
    ends = sum(digamma(i + m - 1) for i in range(1, m + 1))
    added = -math.log(count) + math.log(2 * m) - (1 - 2 * m / count) * digamma(2 * m) + digamma(count + 1)
    entropy = plain + added - 2 / count * ends
    expected = NORMAL + math.log(float(values.std(correction=0))) - entropy
    assert float(divergence(values)) == pytest.approx(expected, abs=1e-9)


EVEN = torch.rand(MANY, generator=source(0), dtype=torch.float64)
KNOWN = [
    (normal(MANY), 0.0, 0.03),
    (EVEN, NORMAL - 0.5 * math.log(12), 0.03),
    (-EVEN.log(), NORMAL - 1, 0.03),
    # Two heaps that are apart: log(sqrt(17) / 2). The bias that is taken off is not made for tails; here are four.
    (normal(MANY) + 8 * (torch.arange(MANY) % 2), math.log(math.sqrt(17) / 2), 0.08),
]


@pytest.mark.parametrize(("values", "expected", "error"), KNOWN, ids=["normal", "uniform", "exponential", "bimodal"])
def test_known_divergences_are_found(values: Tensor, expected: float, error: float) -> None:
    assert float(divergence(values)) == pytest.approx(expected, abs=error)


@given(st.floats(0.01, 100), st.floats(-10, 10), seeds)
def test_neither_scale_nor_place_nor_order_changes_it(scale: float, place: float, seed: int) -> None:
    values = normal(50, seed=seed)
    order = torch.randperm(50, generator=source(seed))
    assert float(divergence(scale * values[order] + place)) == pytest.approx(float(divergence(values)), abs=1e-6)


@given(st.integers(3, 8), st.integers(1, 4), seeds)
def test_its_gradient_at_the_rows_is_that_of_differences(rows: int, width: int, seed: int) -> None:
    h = normal(rows, width, seed=seed).requires_grad_()
    d = torch.pdist(h.detach()).sort().values
    assume((d.diff() / d.std()).min() > 1e-3)  # a step past another distance would change their order
    (gradient,) = torch.autograd.grad(normality(h), h)
    along = normal(rows, width, seed=seed + 1)
    step = 1e-6 * along
    with torch.no_grad():
        slope = float(normality(h + step) - normality(h - step)) / 2e-6
    assert slope == pytest.approx(float((gradient * along).sum()), rel=1e-3, abs=1e-5)


def test_single_precision_gives_the_gradient_of_double() -> None:
    wide = normal(64, 16).requires_grad_()
    narrow = wide.detach().float().requires_grad_()
    value, other = normality(wide), normality(narrow)
    value.backward()
    other.backward()
    assert other.dtype == torch.float32 and other.item() == pytest.approx(value.item(), abs=1e-4)
    assert wide.grad is not None and narrow.grad is not None
    assert float((narrow.grad - wide.grad).norm() / wide.grad.norm()) < 0.02


def test_descent_makes_distances_normal() -> None:
    """Two clusters: distances within and across."""
    h = (normal(40, 6) + 6 * (torch.arange(40) % 2).unsqueeze(1)).requires_grad_()
    before = normality(h).item()
    for _ in range(300):
        (gradient,) = torch.autograd.grad(normality(h), h)
        h.data -= 0.05 * gradient.sign()
    after = torch.pdist(h.detach())
    histogram = np.histogram(((after - after.mean()) / after.std()).numpy(), bins=[-9, -1, 0, 1, 9])[0] / len(after)
    assert before > 0.3 and normality(h).item() < 0.1
    assert np.abs(histogram - [0.159, 0.341, 0.341, 0.159]).max() < 0.05  # of a normal distribution


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_too_few_rows_give_zero(rows: int) -> None:
    h = torch.ones(rows, 3).cumsum(0).requires_grad_()
    value = normality(h)
    value.backward()
    assert value.item() == 0 and (h.grad is None or not h.grad.any())


def test_of_equal_distances_it_says_nothing_and_of_equal_rows_nothing_infinite() -> None:
    corners = torch.eye(5).requires_grad_()
    twins = normal(10, 4, dtype=torch.float32).repeat_interleave(8, 0).requires_grad_()
    for h in (corners, twins):
        value = normality(h)
        value.backward()
        assert h.grad is not None and torch.isfinite(value) and torch.isfinite(h.grad).all()
    assert normality(corners).item() == pytest.approx(0, abs=1e-6) and not corners.grad.any()
    assert normality(twins).item() > 0.5 and float(twins.grad.norm()) < 10  # distances in a few heaps
