"""Quantisation: the paper's rounding, both ways through the field, and a bound that no sum exceeds."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.field import Field
from colonnade.common.aggregation.fixed_point import (
    dequantise,
    from_field,
    headroom,
    quantise_data,
    quantise_model,
    round_nearest,
    round_stochastic,
    sum_bound,
    to_field,
)
from colonnade.common.errors import InputError

SMALL, FIELD = Field(101), Field(2**31 - 1)
NUMBERS = st.lists(st.floats(-1000, 1000), min_size=1, max_size=20)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_element_comes_back_the_largest_positive_one_too() -> None:
    integers = torch.arange(-50, 51)
    elements = to_field(SMALL, integers, "they", 0)
    assert elements.tolist() == [integer % 101 for integer in range(-50, 51)]
    assert torch.equal(from_field(SMALL, elements), integers)
    assert dequantise(SMALL, torch.tensor([50, 51]), 1, 5).tolist() == [5.0, -5.0]  # Eq. 7 would give -5.1 for 50


@given(NUMBERS, st.integers(0, 20))
def test_data_go_to_the_nearest_step_and_a_half_goes_up(numbers: list[float], bits: int) -> None:
    back = from_field(FIELD, quantise_data(FIELD, torch.tensor(numbers, dtype=torch.float64), bits))
    assert back.tolist() == [math.floor(Fraction(x) * 2**bits + Fraction(1, 2)) for x in numbers]


def test_halves_and_their_neighbours() -> None:
    below = math.nextafter(0.5, 0)
    assert round_nearest(torch.tensor([0.5, -0.5, 1.5, -1.5, below], dtype=torch.float64)).tolist() == [1, 0, 2, -1, 0]


@given(NUMBERS, st.integers(0, 20), st.integers(0, 9))
def test_weights_go_to_one_of_the_two_steps_beside_them(numbers: list[float], bits: int, seed: int) -> None:
    back = from_field(FIELD, quantise_model(FIELD, torch.tensor(numbers, dtype=torch.float64), bits, draws(seed)))
    for x, integer in zip(numbers, back.tolist(), strict=True):
        assert integer in {math.floor(Fraction(x) * 2**bits), math.ceil(Fraction(x) * 2**bits)}


def test_stochastic_rounding_is_right_on_average_and_moves_no_integer() -> None:
    numbers = torch.tensor([0.25, -0.25, 2.9, -7.5, 3.0, -(2.0**30)], dtype=torch.float64).repeat(40_000, 1)
    rounded = round_stochastic(numbers, draws())
    assert ((rounded.mean(0) - numbers[0]).abs() < 5 * 0.5 / math.sqrt(40_000)).all()
    assert torch.equal(rounded[:, 4:], numbers[:, 4:])
    assert torch.equal(rounded, round_stochastic(numbers, draws())) and not torch.equal(
        rounded, round_stochastic(numbers, draws(1))
    )


def test_the_average_of_a_sum_comes_back() -> None:
    parts = torch.randn(5, 4, dtype=torch.float64, generator=draws())
    total = quantise_data(FIELD, parts, 20).sum(0) % FIELD.p
    assert torch.allclose(dequantise(FIELD, total, 20, 5), parts.mean(0), atol=2.0**-20)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="the data have a number that is not finite"):
        quantise_data(FIELD, torch.tensor([1.0, value]), 4)
    with pytest.raises(InputError, match="the weights have a number that is not finite"):
        quantise_model(FIELD, torch.tensor([1.0, value]), 4, draws())


def test_sums_beyond_half_of_p_are_refused_and_sums_just_below_are_accepted() -> None:
    assert quantise_data(SMALL, torch.tensor([25.0, -25.0]), 1).tolist() == [50, 51]
    with pytest.raises(InputError, match=r"the data reach 25.5, which with 1 bits leaves ±p/2 for p = 101"):
        quantise_data(SMALL, torch.tensor([25.5]), 1)
    assert quantise_data(SMALL, torch.empty(0, 3), 1).shape == (0, 3)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 999))
def test_no_sum_exceeds_its_bound_and_some_row_reaches_it(rows: int, inputs: int, outputs: int, seed: int) -> None:
    x = torch.randint(-99, 100, (rows, inputs), generator=draws(seed))
    w = torch.randint(-99, 100, (inputs, outputs), generator=draws(seed + 1))
    bound = sum_bound(FIELD, x % FIELD.p, w % FIELD.p)
    assert int((x @ w).abs().max()) <= bound
    worst = x.abs().amax(0) * w.sign().mT  # of every output
    assert int((worst @ w).abs().max()) == bound
    largest = [max(abs(int(x[r, i])) for r in range(rows)) for i in range(inputs)]
    assert bound == max(sum(largest[i] * abs(int(w[i, j])) for i in range(inputs)) for j in range(outputs))


@given(st.integers(0, 999))
def test_within_its_headroom_no_total_wraps_and_beyond_it_one_does(seed: int) -> None:
    x = torch.randint(-2, 3, (3, 2, 2), generator=draws(seed))
    w = torch.randint(-5, 6, (3, 2, 1), generator=draws(seed + 1))
    bounds = [sum_bound(SMALL, a % 101, b % 101) for a, b in zip(x, w, strict=True)]
    worst = [x[n].abs().amax(0) * w[n].sign().mT for n in range(3)]
    total = sum((worst[n] @ w[n])[0, 0] for n in range(3))
    comes_back = from_field(SMALL, torch.as_tensor(total % 101))
    assert (headroom(SMALL, bounds) >= 1) == bool(comes_back == total)


def test_headroom_in_numbers() -> None:
    assert headroom(SMALL, [20, 30]) == 1.0 and headroom(SMALL, [10, 0, 15]) == 2.0
    assert headroom(SMALL, [0, 0]) == math.inf
    assert sum_bound(SMALL, torch.empty(0, 2, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64)) == 0
