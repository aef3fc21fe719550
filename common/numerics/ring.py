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

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.numerics.fixed_point import round_nearest, round_stochastic

DTYPES = {32: torch.int32, 64: torch.int64}
LEAST_BOUND = 1e-200  # below, s would overflow float64


@dataclass(frozen=True)
class Ring:
    """Sums of C parties' numbers in ±B as integers modulo 2^b.

    The decoded sum is off by at most C/(2 s) with nearest rounding, and by less than C/s, 0 on average, with stochastic
    rounding, each against the sum of the clipped numbers. With 64 bits and large numbers float64 adds an error of 2^-53
    of the sum.

    Args:
        bound: B, the magnitude that a number is clipped to.
        parties: C, the maximum number of summands.
        bits: b, 32 or 64.
        precision: minimum bits of a number, besides its sign: s B ≥ 2^precision.
        finest: a power of two that s does not exceed; without one, the range alone limits it.

    Raises:
        InputError: an argument is out of range, or the bits are too few for so many parties.
    """

    bound: float
    parties: int
    bits: int = 32
    precision: int = 8
    finest: float = math.inf

    def __post_init__(self) -> None:
        if self.bits not in DTYPES:
            raise InputError(f"words of {self.bits} bits", hint="take 32 or 64")
        if self.parties < 1 or self.precision < 1 or not LEAST_BOUND <= self.bound < math.inf:
            raise InputError(
                f"no sum of {self.parties} numbers of {self.precision} bits in ±{self.bound:g}",
                hint=f"take at least one party and one bit, and a finite bound from {LEAST_BOUND:g} on",
            )
        if self.bound * self.scale < 2**self.precision:
            raise InputError(
                f"{self.bits} bits are too few for {self.parties} parties' numbers of {self.precision} bits and a sign",
                hint="take 64 bits, fewer parties or less precision",
            )

    @cached_property
    def scale(self) -> float:
        """s, a power of two: multiplying by it rounds nothing."""
        return min(2.0 ** _exponent(self._top // self.parties, self.bound), self.finest)

    @property
    def dtype(self) -> torch.dtype:
        """Word type: int32 or int64."""
        return DTYPES[self.bits]

    @property
    def largest(self) -> int:
        """⌈s B⌉, the largest magnitude of an encoded number."""
        return math.ceil(self.bound * self.scale)

    @property
    def headroom(self) -> float:
        """Ratio of the ring's range to the largest sum: at least 1, else the ring is refused."""
        return self._top / (self.parties * self.largest)

    @property
    def error(self) -> float:
        """C/(2 s): maximum error of a sum, with nearest rounding."""
        return self.parties / (2 * self.scale)

    @property
    def _top(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    def encode(self, x: Tensor, draws: torch.Generator | None = None) -> Tensor:
        """Round(s clip(x, ±B)), to the nearest step, a half upwards.

        Args:
            x: real numbers of any shape.
            draws: for stochastic rounding instead: up with the probability of the fraction.

        Returns:
            Words in the shape of x.

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


def _exponent(most: int, bound: float) -> int:
    """The largest e with ⌈2^e B⌉ ≤ most, if most is not 0."""
    mantissa, exponent = math.frexp(bound)  # B = m 2^x with 1/2 ≤ m < 1, so ⌈2^(e + x) m⌉ ≤ 2^(e + x)
    guess = most.bit_length() - exponent
    return guess if math.ceil(Fraction(mantissa) * 2 ** most.bit_length()) <= most else guess - 1
