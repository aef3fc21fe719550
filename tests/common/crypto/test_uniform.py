"""Masks: uniform to the last element, independent, never the same twice."""

from __future__ import annotations

import os
import random
from unittest import mock

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy import stats

from colonnade.common.aggregation.field import secure_elements

MERSENNE, NEAR_26, REJECTS_HALF = 2**31 - 1, 2**26 - 5, 2**16 + 1


def seeded(p: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Masks drawn with this seed in place of the system's randomness."""
    with mock.patch.object(os, "urandom", random.Random(seed).randbytes):
        return secure_elements(p)(shape)


@pytest.mark.parametrize("p", [2, 3, 5, 7, 257])
def test_small_fields_are_hit_evenly(p: int) -> None:
    counts = torch.bincount(seeded(p, 200_000), minlength=p)
    assert len(counts) == p and stats.chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("p", [REJECTS_HALF, NEAR_26, MERSENNE])
def test_large_ones_are_over_their_whole_range(p: int) -> None:
    drawn = seeded(p, 400_000)
    assert int(drawn.min()) >= 0 and int(drawn.max()) < p
    for bins in (64, 97):
        edges = np.linspace(0, p, bins + 1)
        counts, expected = np.histogram(drawn.numpy(), edges)[0], np.diff(np.ceil(edges))
        assert stats.chisquare(counts, expected / expected.sum() * len(drawn)).pvalue > 1e-4
    low = torch.bincount(drawn % 8, minlength=8).numpy()
    assert stats.chisquare(low).pvalue > 1e-4


def test_neighbours_are_independent() -> None:
    first, second = seeded(7, 200_000).reshape(2, -1)
    apart = seeded(7, 200_000).reshape(-1, 2).unbind(1)
    for one, other in [(first, second), apart]:
        assert stats.chisquare(torch.bincount(one * 7 + other, minlength=49).numpy()).pvalue > 1e-4


@pytest.mark.parametrize("p", [5, REJECTS_HALF, MERSENNE])
def test_masks_are_the_keystream_without_values_that_are_too_large(p: int) -> None:
    key = random.Random(3).randbytes(32)
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * 300_000))
    bits = (p - 1).bit_length()
    words = (int.from_bytes(stream[4 * i : 4 * i + 4], "little") % 2**bits for i in range(300_000))
    assert seeded(p, 100_000, seed=3).tolist() == [word for word in words if word < p][:100_000]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (2, 3, 5), (2**15 + 1,)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    drawn = secure_elements(MERSENNE)(shape)
    assert drawn.shape == shape and drawn.dtype == torch.int64


def test_secure_elements_are_uniform_and_never_come_again() -> None:
    torch.manual_seed(0)
    draw = secure_elements(MERSENNE)
    one, two = draw((1000,)), draw((1000,))
    torch.manual_seed(0)
    three = secure_elements(MERSENNE)((1000,))
    for other in (two, three):
        assert int((one == other).sum()) < 3
    assert abs(float(draw((100_000,)).double().mean()) / MERSENNE - 0.5) < 6 * 12**-0.5 / 100_000**0.5
