"""A party's share of the noise of a blinded sum: a discrete Gaussian on the steps of the sum's ring.

Kairouz, Liu and Steinke 2021. Values are clipped first and rounded towards zero afterwards: no entry grows, so that two
rounded vectors are no further apart than the two clips allow, and rounding costs no sensitivity. The words are added
modulo 2^b, which is a function of the sum, so that a sum that wrapped would protect as much.

The sum of n parties' independent discrete Gaussians of sigma steps is no discrete Gaussian. It is accounted as one
continuous Gaussian of proven smaller deviation: two steps, each with a proven ratio of probabilities, lead to the
Gaussian mechanism, whose composition is exact (accounting/accountant.py):

1. Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
   aggregation" (2021), on the convolution of n discrete Gaussians: in every entry the ratio of the sum's probabilities
   to those of a discrete Gaussian of variance n sigma^2 is at most e^tau either way, with
   tau = 10 sum_(k = 1)^(n - 1) exp(-2 pi^2 sigma^2 k / (k + 1)).
2. Let Z be N(0, S^2 - v), and round it at random to y with probability proportional to exp(-(y - Z)^2 / (2 v)). The
   normaliser is sqrt(2 pi v) (1 +- e), e = 2 exp(-2 pi^2 v) (1 + ..), by Poisson's summation; so y is a discrete
   Gaussian of variance S^2 but for a ratio of (1 + e) / (1 - e). The rounding commutes with whole shifts: a discrete
   Gaussian added to whole numbers is a function of them plus N(0, S^2 - v).

A transcript of d entries in all is therefore a post-processing of Gaussian releases, but for a ratio of e^(d kappa),
kappa = tau + log((1 + e) / (1 - e)), at both neighbours: epsilon grows by 2 d kappa, and delta by a factor e^(d kappa).
`share` chooses deviations that make the variance n sigma^2 - v as large as promised. From LEAST steps on, d kappa is
below 10^-50 for any d below 2^60, less than the rounding of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.laplace import Bits, bernoulli_exp, discrete_laplace

SMOOTHING = 9  # v, of the rounding: the variance that is given up

LEAST = 2**8  # the smallest sigma of a share, in steps


def share(deviation: float, parties: int) -> int:
    """The smallest sigma of each party's noise for which the sum has the promised deviation.

    Args:
        deviation: the promised one, in steps: that of the continuous Gaussian that the sum's noise is accounted as.
        parties: n, whose noise counts.
    """
    wanted = Fraction(deviation) ** 2 + SMOOTHING
    found = math.isqrt(math.ceil(wanted / parties))
    return found if parties * found**2 >= wanted else found + 1


def promised(sigma: int, parties: int) -> float:
    """sqrt(n sigma^2 - v): deviation of the continuous Gaussian that the sum's noise is accounted as."""
    return math.sqrt(parties * sigma**2 - SMOOTHING)


def excess(sigma: int, parties: int) -> float:
    """kappa, the logarithm of the largest ratio of probabilities in an entry.

    Args:
        sigma: each party's noise, in steps.
        parties: n.
    """
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, parties))
    e = sum(2 * math.exp(-2 * math.pi**2 * SMOOTHING * k**2) for k in range(1, 4))
    return tau + math.log1p(e) - math.log1p(-e)


_FINEST = 2.0**20  # steps of a share's deviation, at most: finer hides nothing more, and coarser rounds more
_TAIL = 12.0  # deviations that the ring has room for: a share is beyond them once in 10^32 draws
_ROUNDING = 1e-9  # relative, of norms in float64: values are shortened by it, so that no clip is passed


def noisy_ring(plan: PrivacyPlan, bound: float, parties: int, bits: int) -> Ring:
    """The ring of sums with noise once: room for every party's clipped values and noise, in fine steps.

    Args:
        bound: minimum magnitude of values that the ring holds, for evaluations in the clear.
        bits: bits of a word.

    Raises InputError if the bits are too few: the noise would have too few steps, or wrap around.
    """
    part = plan.deviation / plan.gain
    finest = 2.0 ** math.floor(math.log2(_FINEST / part))
    ring = Ring(max(bound, plan.largest + _TAIL * part), parties, bits, finest=finest)
    if ring.scale * part < LEAST:
        raise InputError(
            f"noise of {part:.3g} a party and sums of {parties} numbers in ±{ring.bound:.3g}: with {bits} bits the "
            f"noise has fewer than {LEAST} steps",
            hint="lower federation.blinding.bound, which need not be larger than the values, or take bits: 64",
        )
    return ring


def ring(federation: FederationConfig, privacy: PrivacyPlan | None = None) -> Ring:
    """The federation's agreed ring, with room for noise once. Raises InputError if sums do not fit."""
    blinding, parties = federation.blinding, len(federation.parties)
    if privacy is not None and privacy.config.once is not None:
        return noisy_ring(privacy, blinding.bound, parties, blinding.bits)
    return Ring(blinding.bound, parties, blinding.bits)


class NoiseShare:
    """Adds a party's share of the noise to values that are clipped already.

    Args:
        source: makes a source of random bytes for each call.

    Attributes:
        sigma: the discrete Gaussian's, in steps.
    """

    def __init__(self, plan: PrivacyPlan, ring: Ring, source: Callable[[], Bits]) -> None:
        self._scale, self._source = ring.scale, source
        self.sigma = share(plan.deviation * ring.scale, plan.honest)

    def __call__(self, bounded: Tensor) -> Tensor:
        """Whole steps of the ring, int64 in the shape of the values, on the CPU."""
        steps = (bounded.double().cpu() * (self._scale * (1 - _ROUNDING))).trunc().long()
        noise = discrete_gaussian(steps.numel(), self.sigma, self._source())
        return steps + torch.from_numpy(noise).view(steps.shape)

    def value(self, steps: Tensor, like: Tensor) -> Tensor:
        """The steps' real values, in dtype and on the device of another tensor."""
        return (steps.double() / self._scale).to(like.device, like.dtype)


LARGEST = 2**22
"""Largest sigma: of candidates beyond 2^31, 512 deviations, none is kept, which happens once in e^512 draws."""

_Whole = NDArray[np.int64]

_BLOCK = 2**17  # candidates at a time, so that arrays stay in the cache


def discrete_gaussian(count: int, sigma: int, bits: Bits) -> _Whole:
    """Independent x with P(x) proportional to exp(-x^2 / (2 sigma^2)).

    Args:
        sigma: 1 to LARGEST; the standard deviation is not larger, and equals it to 10^-7 from 1 on.

    Returns:
        int64 (count,).

    Raises InputError if sigma is out of range.
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
