"""DP-SGD of a linear encoder: autograd row by row, its sensitivity, its draws, its noise, and that it learns."""

from __future__ import annotations

import math
import random

import pytest
import torch
from sklearn.datasets import load_digits

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.sampled import SampledGaussian, find_noise
from colonnade.common.privacy.encoders import LinearEncoder
from colonnade.common.privacy.laplace import drawn_rows
from colonnade.common.privacy.noise import seeded_normals


def drawn(rows: int, features: int = 7, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=made, dtype=torch.float64)
    return x, torch.eye(classes, dtype=torch.float64)[torch.randint(classes, (rows,), generator=made)]


def silent(shape: torch.Size) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def encoder(rate: float = 1.0, sigma: float = 1.0, steps: int = 4, clip: float = 0.5, lr: float = 2.0) -> LinearEncoder:
    return LinearEncoder(SampledGaussian(rate, sigma, steps), clip, lr)


def test_without_noise_it_is_clipped_gradient_descent_by_autograd() -> None:
    x, y = drawn(30)
    weights, found = torch.zeros(7, 4, dtype=torch.float64), []
    for _ in range(4):
        total = torch.zeros_like(weights)
        for row, target in zip(x, y, strict=True):
            w = weights.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(row @ w, target), w)
            total += gradient * min(1, 0.5 / float(gradient.norm()))
        weights = weights - 2.0 * total / 30
        found.append(weights)
    torch.testing.assert_close(encoder().train(x, y, normals=silent), (found[2] + found[3]) / 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [1.0, 1e30, 1e200, math.nan, math.inf])
def test_another_row_moves_the_sum_by_two_clips_at_most_whatever_it_holds(bad: float) -> None:
    """One row alone in the sum, so that its whole share is seen; weights are large, so that errors are too."""
    weights = 50 * drawn(7, 4)[0]
    x, y = drawn(40, seed=2)
    x[::2] *= bad
    shares = torch.stack([encoder().clipped_sum(weights, x[i : i + 1], y[i : i + 1]).flatten() for i in range(40)])
    assert shares.isfinite().all() and float(shares.norm(dim=1).max()) <= 0.5
    assert bad != 1.0 or float(shares.norm(dim=1).max()) > 0.4999  # the clip is reached


def test_rows_are_drawn_each_by_itself_with_the_rate() -> None:
    rate, rows = 0.3, 400
    bits = random.Random(4).randbytes
    seen = torch.zeros(500, rows)
    for step in range(500):
        seen[step, torch.from_numpy(drawn_rows(rows, rate, bits))] = 1
    sizes = seen.sum(1)
    assert abs(float(seen.mean()) - rate) < 4 * math.sqrt(rate * (1 - rate) / seen.numel())
    assert float(sizes.var()) == pytest.approx(rows * rate * (1 - rate), rel=0.3)  # binomial, not a fixed size
    together = float((seen[:, ::2] * seen[:, 1::2]).mean())
    assert together == pytest.approx(rate**2, abs=0.005)


def test_every_entry_has_noise_of_sigma_clips() -> None:
    """Rows of zeros have no gradient: after two steps, of which the second counts, weights are two noises."""
    x, y = torch.zeros(50, 300, dtype=torch.float64), drawn(50, 300)[1]
    made = encoder(rate=0.5, sigma=3.0, steps=2, clip=0.5, lr=25.0)
    weights = made.train(x, y, normals=seeded_normals(torch.Generator().manual_seed(1)))
    assert float(weights.std()) == pytest.approx(math.sqrt(2) * 3.0 * 0.5, rel=0.1)


def test_draws_and_noise_are_new_each_time() -> None:
    x, y = drawn(100)
    made = encoder(rate=0.3)
    assert not torch.equal(made.train(x, y, normals=silent), made.train(x, y, normals=silent))
    assert not torch.equal(encoder().train(x, y), encoder().train(x, y))


def test_it_learns_the_digits_at_epsilon_4() -> None:
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images) / torch.tensor(images).norm(dim=1, keepdim=True)
    y = torch.tensor(labels)
    rate, steps = 0.2, 60
    mechanism = SampledGaussian(rate, find_noise(4.0, 1e-4, rate, steps), steps)
    made = LinearEncoder(mechanism, clip=1.0, lr=5.0)
    normals = seeded_normals(torch.Generator().manual_seed(3))
    weights = made.train(x[:1300], torch.eye(10)[y[:1300]], normals=normals, bits=random.Random(3).randbytes)
    assert float(((x[1300:] @ weights).argmax(1) == y[1300:]).double().mean()) > 0.75


def test_rows_and_targets_of_other_numbers_are_refused() -> None:
    x, y = drawn(10)
    for features, targets in ((x, y[:9]), (x[:0], y[:0]), (x[0], y[0])):
        with pytest.raises(InputError, match="as many rows"):
            encoder().train(features, targets)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_targets_that_are_no_probabilities_are_refused(bad: float) -> None:
    x, y = drawn(10)
    y[3, 1] = bad
    with pytest.raises(InputError, match="probabilities"):
        encoder().train(x, y)
