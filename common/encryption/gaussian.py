"""Discrete Gaussians of a small deviation, by the million: errors of ciphertexts."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

from colonnade.common.privacy.laplace import Bits

_FIRST = 16  # bits of a word that decide alone, but for one value in 300
_REST = 64 - _FIRST
_UNSURE = np.int8(-128)
_TAILS = 12  # deviations on each side of the table; words of 64 bits reach 9


def small_gaussian(count: int, sigma: int, bits: Bits) -> NDArray[np.int8]:
    """Independent x with P(x) proportional to exp(-x^2 / (2 sigma^2)), each probability to 2^-64.

    Args:
        sigma: 1 to 10.
        bits: source of randomness: 2 bytes a sample, 6 more for one in 300.
    """
    bounds, first = _tables(sigma)
    words = np.frombuffer(bits(2 * count), "<u2")
    drawn: NDArray[np.int8] = first[words]
    unsure = np.flatnonzero(drawn == _UNSURE)
    if unsure.size:
        rest = np.frombuffer(bits(8 * unsure.size), "<u8") >> np.uint64(_FIRST)
        whole = (words[unsure].astype(np.uint64) << np.uint64(_REST)) | rest
        drawn[unsure] = np.searchsorted(bounds, whole, side="right") - _TAILS * sigma
    return drawn


@cache
def _tables(sigma: int) -> tuple[NDArray[np.uint64], NDArray[np.int8]]:
    """The words at which the next value begins, uint64; and values by a word's first 16 bits, where these decide."""
    if not 1 <= sigma <= 10:
        raise ValueError(f"a deviation of {sigma}")
    values = range(-_TAILS * sigma, _TAILS * sigma + 1)
    with localcontext() as precise:
        precise.prec = 60
        weights = [(Decimal(-x * x) / (2 * sigma * sigma)).exp() for x in values]
        total, below, ends = sum(weights), Decimal(0), []
        for weight in weights[:-1]:
            below += weight
            ends.append(int(below / total * 2**64))
    bounds = np.array(ends, np.uint64)
    starts = np.arange(2**_FIRST, dtype=np.uint64) << np.uint64(_REST)
    low = np.searchsorted(bounds, starts, side="right")
    high = np.searchsorted(bounds, starts | np.uint64(2**_REST - 1), side="right")
    return bounds, np.where(low == high, low - _TAILS * sigma, _UNSURE).astype(np.int8)
