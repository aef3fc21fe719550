"""Exact sampling of the discrete Gaussian, with integers only and no rounding.

Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), Algorithm 3: a discrete Laplace
number Y of scale t is kept with probability

    exp(-(|Y| - sigma^2 / t)^2 / (2 sigma^2)).

Any t is correct, and the paper takes floor(sigma) + 1, near the best. Here sigma is a whole number and t = sigma, so
that the exponent is (|Y| - sigma)^2 / (2 sigma^2), a fraction of 64-bit integers. Whole arrays are drawn at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.common.errors import InputError
from colonnade.common.privacy.laplace import Bits, bernoulli_exp, discrete_laplace

LARGEST = 2**22
"""Largest sigma: of candidates beyond 2^31, 512 deviations, none is kept, which happens once in e^512 draws."""

_Whole = NDArray[np.int64]

_BLOCK = 2**17  # candidates at a time, so that arrays stay in the cache


def discrete_gaussian(count: int, sigma: int, bits: Bits) -> _Whole:
    """Independent x with P(x) proportional to exp(-x^2 / (2 sigma^2)).

    Args:
        count: number of samples.
        sigma: 1 to LARGEST; the standard deviation is not larger, and equals it to 10^-7 from 1 on.
        bits: source of randomness.

    Returns:
        int64 (count,).

    Raises:
        InputError: sigma is out of range.
    """
    if not 1 <= sigma <= LARGEST:
        raise InputError(f"a discrete Gaussian of sigma = {sigma}", hint=f"take 1 to {LARGEST}")
    found = [np.empty(0, np.int64)]
    while (missing := count - sum(map(len, found))) > 0:
        found.append(_candidates(min(missing + missing // 3 + 16, _BLOCK), sigma, bits))
    return np.concatenate(found)[:count]


def _candidates(count: int, sigma: int, bits: Bits) -> _Whole:
    """Algorithm 3, without the rejected samples."""
    y = discrete_laplace(count, sigma, bits)
    away = np.abs(y) - sigma
    near = away < 2**31
    y, away = y[near], away[near]
    kept: _Whole = y[bernoulli_exp(away * away, 2 * sigma * sigma, bits)]
    return kept
