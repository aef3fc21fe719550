"""Fixed point modulo 2^b against Python's integers and fractions: rounding, sums that wrap, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.errors import InputError

BITS = st.sampled_from([32, 64])
BOUNDS = st.floats(1e-6, 1e6)
NUMBERS = st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=20)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def steps(ring: Ring, x: float) -> int:
    """Round(s clip(x)) by fractions."""
    clipped = max(-ring.bound, min(ring.bound, x))
    return math.floor(Fraction(clipped) * Fraction(ring.scale) + Fraction(1, 2))


@given(BOUNDS, st.integers(1, 1000), BITS)
def test_the_scale_is_the_largest_power_of_two_with_sums_that_fit(bound: float, parties: int, bits: int) -> None:
    ring = Ring(bound, parties, bits)
    top, scale = 2 ** (bits - 1) - 1, Fraction(ring.scale)
    assert math.frexp(ring.scale)[0] == 0.5
    assert parties * math.ceil(scale * Fraction(bound)) <= top < parties * math.ceil(2 * scale * Fraction(bound))
    assert ring.largest == math.ceil(scale * Fraction(bound))
    assert ring.headroom == pytest.approx(top / (parties * ring.largest)) and ring.headroom >= 1
    assert ring.error == Fraction(parties) / (2 * scale)


@given(BOUNDS, st.integers(1, 1000), BITS, NUMBERS)
def test_words_are_the_nearest_steps_of_clipped_values(
    bound: float, parties: int, bits: int, shares: list[float]
) -> None:
    ring, numbers = Ring(bound, parties, bits), [share * bound for share in shares]
    words = ring.encode(torch.tensor(numbers, dtype=torch.float64))
    assert words.dtype == ring.dtype == {32: torch.int32, 64: torch.int64}[bits]
    assert words.tolist() == [steps(ring, x) for x in numbers]
    assert all(abs(word) <= ring.largest for word in words.tolist())


@given(BOUNDS, st.integers(1, 9), BITS, st.integers(0, 99))
def test_sums_are_those_of_whole_numbers_and_within_the_error(bound: float, parties: int, bits: int, seed: int) -> None:
    ring = Ring(bound, parties, bits)
    parts = (torch.randn(parties, 3, 4, generator=draws(seed)) * bound).double().clamp(-bound, bound)
    total = ring.total(torch.stack([ring.encode(part) for part in parts]))
    assert total.dtype == ring.dtype and ring.fits(total)
    for place, (word, back) in enumerate(zip(total.flatten().tolist(), ring.decode(total).flatten(), strict=True)):
        numbers = [Fraction(x) for x in parts[:, place // 4, place % 4].tolist()]
        assert word == sum(steps(ring, float(x)) for x in numbers)
        rounding = abs(Fraction(word)) / Fraction(ring.scale) / 2**53  # of float64, where words are longer
        assert abs(Fraction(float(back)) - sum(numbers)) <= Fraction(ring.error) + rounding


@pytest.mark.parametrize("bits", [32, 64])
def test_all_parties_at_the_bound_do_not_wrap(bits: int) -> None:
    for parties in (1, 2, 3, 7, 100, 1000):
        for bound in (1.0, 0.1, 7.99999, 1 / 3):
            ring = Ring(bound, parties, bits)
            for sign in (1, -1):
                words = ring.encode(torch.full((parties, 1), sign * 2 * bound))
                assert ring.total(words).tolist() == [sum(words.flatten().tolist())]
                assert float(ring.decode(ring.total(words))) == pytest.approx(sign * parties * bound, rel=parties / 1e5)


@given(BITS, st.integers(2, 6), st.integers(0, 99))
def test_words_of_the_whole_ring_add_up_modulo_two_to_the_b(bits: int, count: int, seed: int) -> None:
    ring, half = Ring(1.0, 2, bits), 2 ** (bits - 1)
    words = torch.randint(-half, half - 1, (count, 50), generator=draws(seed), dtype=ring.dtype)
    want = [(sum(column) + half) % (2 * half) - half for column in words.mT.tolist()]
    assert ring.total(words).tolist() == want


def test_stochastic_rounding_is_right_on_average_and_off_by_less_than_a_step() -> None:
    ring = Ring(4.0, 2**20)  # 2^-8 a step
    numbers = torch.tensor([0.3, -0.3, 1.0, -3.9999, 5.0], dtype=torch.float64).repeat(40_000, 1)
    clipped, back = numbers.clamp(-4, 4), ring.decode(ring.encode(numbers, draws()))
    assert ((back - clipped).abs() < 1 / ring.scale).all()
    assert ((back.mean(0) - clipped[0]).abs() < 5 * 0.5 / ring.scale / math.sqrt(40_000)).all()
    assert len(back[:, 0].unique()) == 2 and torch.equal(back[:, 2], clipped[:, 2])


def test_a_sum_that_no_numbers_have_does_not_fit() -> None:
    ring = Ring(1.0, 5)
    most = 5 * ring.largest
    assert ring.fits(torch.tensor([most, -most], dtype=torch.int32)) and ring.fits(torch.empty(0, dtype=torch.int32))
    assert not ring.fits(torch.tensor([0, most + 1], dtype=torch.int32))
    assert not ring.fits(torch.tensor([0, -most - 1], dtype=torch.int32))
    assert not ring.fits(torch.tensor([-(2**31)], dtype=torch.int32))


def test_too_few_bits_are_refused_and_just_enough_are_taken() -> None:
    assert Ring(1.0, 2**23 - 1).scale == 2**8
    with pytest.raises(InputError, match="32 bits are too few for 8388608 parties' numbers of 8 bits and a sign"):
        Ring(1.0, 2**23)
    with pytest.raises(InputError, match="32 bits are too few"):
        Ring(1.0, 2**31, precision=1)
    assert Ring(1.0, 2**23, precision=7).scale == 2**7 and Ring(1.0, 2**23, bits=64).scale == 2**39


@pytest.mark.parametrize(
    ("bound", "parties", "bits", "match"),
    [(1.0, 3, 16, "words of 16 bits"), (1.0, 0, 32, "no sum of 0 numbers"), (0.0, 3, 32, "in ±0"),
     (-1.0, 3, 32, "in ±-1"), (math.inf, 3, 32, "in ±inf"), (math.nan, 3, 32, "in ±nan"), (1e-300, 3, 64, "1e-300")],
)  # fmt: skip
def test_invalid_rings_are_refused(bound: float, parties: int, bits: int, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Ring(bound, parties, bits)


def test_the_limits_of_a_bound() -> None:
    for bound in (1e-200, 1e308):
        ring = Ring(bound, 3, 64)
        words = ring.encode(torch.tensor([bound, -bound / 2, 0.0], dtype=torch.float64))
        assert ring.decode(words).tolist() == pytest.approx([bound, -bound / 2, 0.0], rel=1e-15)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="a number is not finite and has no word"):
        Ring(1.0, 3).encode(torch.tensor([0.5, value]))
