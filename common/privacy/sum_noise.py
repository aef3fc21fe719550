"""A party's share of the noise of a blinded sum: a discrete Gaussian on the steps of the sum's ring.

Kairouz, Liu and Steinke 2021. Values are clipped first and rounded towards zero afterwards: no entry grows, so that two
rounded vectors are no further apart than the two clips allow, and rounding costs no sensitivity. The words are added
modulo 2^b, which is a function of the sum, so that a sum that wrapped would protect as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.aggregation.ring import Ring
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.sums import LEAST, share
from colonnade.common.privacy.laplace import Bits, bernoulli_exp, discrete_laplace

_FINEST = 2.0**20  # steps of a share's deviation, at most: finer hides nothing more, and coarser rounds more
_TAIL = 12.0  # deviations that the ring has room for: a share is beyond them once in 10^32 draws
_ROUNDING = 1e-9  # relative, of norms in float64: values are shortened by it, so that no clip is passed


def noisy_ring(plan: PrivacyPlan, bound: float, parties: int, bits: int) -> Ring:
    """The ring of sums with noise once: room for every party's clipped values and noise, in fine steps.

    Args:
        bound: at least this large is what the ring has room for, as for evaluations in the clear.
        bits: of a word.

    Raises:
        InputError: the bits are too few: the noise would have too few steps, or wrap around.
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
    """The federation's agreed ring, with room for noise that is in a sum once. Raises InputError if sums do not fit."""
    blinding, parties = federation.blinding, len(federation.parties)
    if privacy is not None and privacy.config.once is not None:
        return noisy_ring(privacy, blinding.bound, parties, blinding.bits)
    return Ring(blinding.bound, parties, blinding.bits)


class NoiseShare:
    """Adds a party's share of the noise to values that are clipped already.

    Args:
        source: makes a source of random bytes for each call.

    Attributes:
        sigma: of the discrete Gaussian, in steps.
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
        """What the steps stand for, in dtype and on the device of another tensor."""
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
