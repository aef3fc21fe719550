"""Parameters of exact arithmetic, checked before there is a tensor: prime fields, and rings of fixed point.

The arithmetic itself is in field.py and ring.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from colonnade.common.errors import InputError

LARGEST = 2**31 - 1
LEAST_BOUND = 1e-200  # below, a ring's s would overflow float64
_WITNESSES = (2, 3, 5, 7)  # with these, Miller and Rabin's test is exact below 3,215,031,751
_WORDS = (32, 64)

Matrix = list[list[int]]


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo p, an odd prime up to 2³¹ - 1, so that a product of two elements fits into 63 bits."""

    p: int

    def __post_init__(self) -> None:
        if not 2 < self.p <= LARGEST or not is_prime(self.p):
            below = next((n for n in range(min(self.p, LARGEST), 2, -1) if is_prime(n)), LARGEST)
            raise InputError(
                f"the field's p is {self.p}, it must be an odd prime up to {LARGEST}", hint=f"take {below}"
            )


def is_prime(n: int) -> bool:
    """True if n < 3,215,031,751 is prime (deterministic Miller-Rabin test)."""
    if n < 2 or any(n % small == 0 for small in _WITNESSES):
        return n in _WITNESSES
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    return all(_passes(n, pow(witness, (n - 1) >> twos, n), twos) for witness in _WITNESSES)


def _passes(n: int, power: int, twos: int) -> bool:
    if power in (1, n - 1):
        return True
    return any((power := power * power % n) == n - 1 for _ in range(twos - 1))


def lagrange_matrix(sources: Sequence[int], targets: Sequence[int], p: int) -> Matrix:
    """Entry t, s: Π_{l ≠ s} (x_t - x_l) / (x_s - x_l) modulo p, which maps values at sources to those at targets."""
    return [[_coefficient(sources, s, target, p) for s in range(len(sources))] for target in targets]


def _coefficient(sources: Sequence[int], s: int, target: int, p: int) -> int:
    above = below = 1
    for place, source in enumerate(sources):
        if place != s:
            above = above * (target - source) % p
            below = below * (sources[s] - source) % p
    return above * pow(below, -1, p) % p


@dataclass(frozen=True)
class RingSize:
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
    """

    bound: float
    parties: int
    bits: int = 32
    precision: int = 8
    finest: float = math.inf

    def __post_init__(self) -> None:
        if self.bits not in _WORDS:
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


def _exponent(most: int, bound: float) -> int:
    """The largest e with ⌈2^e B⌉ ≤ most, if most is not 0."""
    mantissa, exponent = math.frexp(bound)  # B = m 2^x with 1/2 ≤ m < 1, so ⌈2^(e + x) m⌉ ≤ 2^(e + x)
    guess = most.bit_length() - exponent
    return guess if math.ceil(Fraction(mantissa) * 2 ** most.bit_length()) <= most else guess - 1


@dataclass(frozen=True)
class CodeParameters:
    """Parameters of a Lagrange code.

    Args:
        field: F_p.
        segments: K >= 1.
        betas: β_1 .. β_{K+T}: the points of the segments, then of the masks.
        alphas: α_1 .. α_N: the points of the shares.
    """

    field: PrimeField
    segments: int
    betas: tuple[int, ...]
    alphas: tuple[int, ...]

    def __post_init__(self) -> None:
        p, points = self.field.p, self.betas + self.alphas
        if self.segments < 1 or self.masks < 1:
            raise InputError(
                f"{self.segments} segments and {self.masks} masks: expected at least one of each",
                hint="without a mask a share is a function of the data alone",
            )
        if self.shares < self.threshold:
            raise InputError(
                f"{self.shares} parties cannot decode K = {self.segments}, T = {self.masks}: at least {self.threshold}"
                " must answer",
                hint="fedvs needs three parties at least; with more, lower `segments` (K) or `masks` (T): "
                "R = 2 (K + T - 1) + 1 must not exceed their number",
            )
        if len(set(points)) < len(points) or not all(0 <= point < p for point in points):
            raise InputError(
                f"the {len(points)} points of a Lagrange code are not distinct elements of F_{p}",
                hint="take a p larger than K + T + N, and every point once",
            )

    @property
    def masks(self) -> int:
        return len(self.betas) - self.segments

    @property
    def shares(self) -> int:
        return len(self.alphas)

    @property
    def threshold(self) -> int:
        """R, the number of responses that decoding needs."""
        return 2 * (len(self.betas) - 1) + 1

    @property
    def freedom(self) -> int:
        """R - K, the number of coefficients of a polynomial that vanishes at β_1 .. β_K."""
        return self.threshold - self.segments


def agreed_parameters(field: PrimeField, segments: int, masks: int, shares: int) -> CodeParameters:
    """K segments, T masks, N >= R shares: β = 1 .. K + T and α = K + T + 1 .. K + T + N, where p > K + T + N."""
    points = tuple(range(1, segments + masks + shares + 1))
    return CodeParameters(field, segments, points[: segments + masks], points[segments + masks :])
