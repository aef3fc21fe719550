"""Real numbers as integers modulo 2^b: fixed point for blinded sums, and the guard against wrapping.

Source: VFedMH adds real masks to real embeddings (Eq. 5); the integers replacing them are ours. A number is clipped to
±B and rounded to a multiple of 1/s; s is the largest power of two for which no sum of C such numbers leaves ±(2^(b-1) -
1):

    C ⌈s B⌉ ≤ 2^(b-1) - 1.

A word w of [0, 2^b) is held as the int32 or int64 of the same bits, two's complement: w itself below 2^(b-1), and
w - 2^b from there on. Torch's integer sums drop overflow, which gives the sum modulo 2^b; the word read as a signed
number is the intended sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.aggregation.fixed_point import round_nearest, round_stochastic
from colonnade.common.aggregation.integers import RingSize
from colonnade.common.errors import InputError

DTYPES = {32: torch.int32, 64: torch.int64}


class Ring(RingSize):
    """Sums of C parties' numbers in ±B as integers modulo 2^b, on tensors."""

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.bits]

    def encode(self, x: Tensor, draws: torch.Generator | None = None) -> Tensor:
        """Round(s clip(x, ±B)), to the nearest step, a half upwards; words in the shape of x.

        Args:
            draws: for stochastic rounding instead: up with the probability of the fraction.

        Raises:
            InputError: a number is not finite.
        """
        if not bool(x.isfinite().all()):
            raise InputError("a number is not finite and has no word", hint="look for gaps, or for a step too large")
        scaled = x.detach().double().clamp(-self.bound, self.bound) * self.scale
        return (round_nearest(scaled) if draws is None else round_stochastic(scaled, draws)).to(self.dtype)

    def wrap(self, steps: Tensor) -> Tensor:
        """Whole numbers of steps, int64 of any shape, as words: modulo 2^b, not clipped to ±B."""
        return steps.to(self.dtype)  # torch drops the high bits

    def total(self, words: Tensor) -> Tensor:
        """The sum modulo 2^b over the first dimension, as words."""
        return words.sum(0, dtype=self.dtype)

    def fits(self, total: Tensor) -> bool:
        """True if words may be a sum of C encoded numbers; words with uncancelled masks almost never are."""
        most = self.parties * self.largest
        return not total.numel() or (-most <= int(total.min()) and int(total.max()) <= most)

    def decode(self, total: Tensor) -> Tensor:
        """The real sum that words encode, float64 in their shape."""
        return total.double() / self.scale
