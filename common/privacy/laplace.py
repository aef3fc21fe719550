"""Exact sampling of the discrete Laplace distribution, with integers only and no rounding.

A Laplace number made from floating-point logarithms has gaps that show which value it was added to
(Mironov, "On significance of the least significant bits for differential privacy", 2012), and then
its epsilon differs from the formula's. Here every coin is tossed by comparing integers
(Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020, Algorithms 1
and 2), for whole arrays at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = Callable[[int], bytes]
"""Returns a number of random bytes: `os.urandom`, or a seeded generator's where noise need not protect."""

_Whole = NDArray[np.int64]

_GRAIN = 2**40  # of the probability that a row is drawn
_RANGE = 2**62  # of a random word; the arithmetic below stays within 63 bits


def discrete_laplace(count: int, scale: int, bits: Bits) -> _Whole:
    """Independent x with P(x) proportional to exp(-|x| / scale).

    Args:
        scale: t >= 1, and below 2^52 for the arithmetic.

    Returns:
        int64 (count,).
    """
    found = [np.empty(0, np.int64)]
    while (missing := count - sum(map(len, found))) > 0:
        found.append(_candidates(missing + missing // 2 + 16, scale, bits))
    return np.concatenate(found)[:count]


def bernoulli_exp(numerators: _Whole, n: int, bits: Bits) -> NDArray[np.bool_]:
    """True with probability exp(-u / n), for every u of 0 or more: exp(-1) for each whole n in u, then the rest."""
    kept = np.zeros(len(numerators), np.bool_)
    whole = numerators // n
    going: NDArray[Any] = np.arange(len(numerators))
    step = 0
    while (unsure := whole[going] > step).any():
        lives = _decays(np.ones(int(unsure.sum()), np.int64), 1, bits)
        going = np.concatenate([going[~unsure], going[unsure][lives]])
        step += 1
    kept[going] = _decays(numerators[going] - whole[going] * n, n, bits)
    return kept


def _candidates(count: int, scale: int, bits: Bits) -> _Whole:
    """Algorithm 2, without the rejected samples."""
    low = uniform_below(scale, count, bits)
    low = low[_decays(low, scale, bits)]
    size = low + scale * _successes(len(low), bits)
    negative = uniform_below(2, len(size), bits) == 1
    kept: _Whole = np.where(negative, -size, size)[~(negative & (size == 0))]  # otherwise 0 would count twice
    return kept


def _successes(count: int, bits: Bits) -> _Whole:
    """Number of successes of a coin of probability 1/e before its first failure."""
    total = np.zeros(count, np.int64)
    going: NDArray[Any] = np.arange(count)
    while going.size:
        going = going[_decays(np.ones(going.size, np.int64), 1, bits)]
        total[going] += 1
    return total


def _decays(u: _Whole, n: int, bits: Bits) -> NDArray[np.bool_]:
    """Algorithm 1: True with probability exp(-u/n), for every u of 0 .. n."""
    tosses = np.ones(len(u), np.int64)
    going: NDArray[Any] = np.arange(len(u))
    k = 1
    while going.size:
        going = going[uniform_below(n * k, going.size, bits) < u[going]]  # a coin of probability u / (n k)
        tosses[going] += 1
        k += 1
    odd: NDArray[np.bool_] = tosses % 2 == 1
    return odd


def uniform_below(bound: int, count: int, bits: Bits) -> _Whole:
    """Uniform integers 0 .. bound - 1, int64 (count,), by rejection of words that would bias them; bound <= 2^62."""
    words = _words(count, bits)
    while (again := np.flatnonzero(words >= _RANGE - _RANGE % bound)).size:
        words[again] = _words(again.size, bits)
    return words % bound


def drawn_rows(rows: int, rate: float, bits: Bits) -> _Whole:
    """Numbers of the rows that a step draws, each by itself with probability q, rounded down to a multiple of 2^-40.

    Args:
        rate: q.
        bits: source of randomness; the system's, where the draws must stay secret.
    """
    return np.flatnonzero(uniform_below(_GRAIN, rows, bits) < int(rate * _GRAIN))


def _words(count: int, bits: Bits) -> _Whole:
    return (np.frombuffer(bits(8 * count), np.uint64) >> np.uint64(2)).astype(np.int64)
