"""Errors of ciphertexts."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
from scipy.stats import chisquare

from colonnade.common.encryption.linear import keystream, small_gaussian


@cache
def total(sigma: int) -> float:
    return math.fsum(math.exp(-y * y / (2 * sigma * sigma)) for y in range(-200, 201))


def exact(x: int, sigma: int) -> float:
    return math.exp(-x * x / (2 * sigma * sigma)) / total(sigma)


@pytest.mark.parametrize("sigma", [1, 8])
def test_samples_have_the_probabilities(sigma: int) -> None:
    drawn = small_gaussian(2_000_000, sigma, random.Random(1).randbytes)
    most = 3 * sigma
    counts = [int((drawn == x).sum()) for x in range(-most, most + 1)]
    expected = [exact(x, sigma) * len(drawn) for x in range(-most, most + 1)]
    counts.append(len(drawn) - sum(counts))
    expected.append(len(drawn) - sum(expected))
    assert chisquare(counts, expected).pvalue > 1e-4


def test_words_at_a_values_border_are_decided_by_all_their_bits() -> None:
    """The cumulative probability of each value, to 2^-64, is where the next one begins."""
    shares = [exact(y, 8) for y in range(-96, 21)]
    for x in range(-20, 21):
        below = math.fsum(shares[: x + 96])
        for word, value in ((int(below * 2**64) + 2**14, x), (int(below * 2**64) - 2**14, x - 1)):
            parts = [(word >> 48).to_bytes(2, "little"), (word << 16 & (2**64 - 1)).to_bytes(8, "little")]
            assert small_gaussian(1, 8, lambda count, parts=parts: parts.pop(0)[:count])[0] == value
    assert small_gaussian(1, 8, bytes)[0] == -73  # what is smaller has less than 2^-64, all together


def test_no_two_streams_are_equal() -> None:
    assert not np.array_equal(small_gaussian(100, 8, keystream()), small_gaussian(100, 8, keystream()))
    with pytest.raises(ValueError, match="deviation"):
        small_gaussian(1, 11, keystream())
