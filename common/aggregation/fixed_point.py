"""Real numbers as elements of a prime field: FedVS's quantisation, and the guard against wrapping.

Source: Li, Yao and Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated Learning for Split
Models" (2023): Round and ϕ (before Eq. 2), Round_stoc (Eq. 3), φ (Eq. 7). Data are scaled by 2^l_x and weights by
2^l_w, so that a product carries 2^(l_x + l_w).

Eq. 7 reads every element from (p - 1)/2 on as negative, including (p - 1)/2 itself, which becomes -(p + 1)/2. Here it
is read as the positive number that ϕ encoded, so all of -(p - 1)/2 .. (p - 1)/2 is recovered.

A sum outside wraps round to a number of the wrong sign and size, undetectably. `sum_bound` and `headroom` check this
beforehand. All arithmetic is in float64, which holds every integer up to 2^53.

For blinded sums the ring of integers modulo 2^b takes the field's place. VFedMH adds real masks to real embeddings
(Eq. 5); the integers replacing them are ours. A number is clipped to ±B and rounded to a multiple of 1/s; s is the
largest power of two for which no sum of C such numbers leaves ±(2^(b-1) - 1):

    C ⌈s B⌉ ≤ 2^(b-1) - 1.

A word w of [0, 2^b) is held as the int32 or int64 of the same bits, two's complement: w itself below 2^(b-1), and
w - 2^b from there on. Torch's integer sums drop overflow, which gives the sum modulo 2^b; the word read as a signed
number is the intended sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from colonnade.common.aggregation.field import Field
from colonnade.common.aggregation.integers import RingSize
from colonnade.common.errors import InputError


def round_nearest(x: Tensor) -> Tensor:
    """Round: the nearest integer, a half upwards; float64."""
    low = x.double().floor()
    return low + (x.double() - low >= 0.5)


def round_stochastic(x: Tensor, draws: torch.Generator) -> Tensor:
    """Round_stoc (Eq. 3): up with the probability of the fraction, so that the expectation is x; float64.

    Args:
        x: numbers of any shape, on the CPU.
        draws: on the CPU, one float64 number per entry; an integer is never changed.
    """
    low = x.double().floor()
    return low + (torch.rand(x.shape, generator=draws, dtype=torch.float64) < x.double() - low)


def quantise_data(field: Field, x: Tensor, bits: int) -> Tensor:
    """X̄ = ϕ(Round(2^l_x X)), int64 in the shape of x, with l_x = `bits`. Raises InputError: a number leaves ±p/2."""
    return to_field(field, round_nearest(x.double() * 2.0**bits), "the data", bits)


def quantise_model(field: Field, weights: Tensor, bits: int, draws: torch.Generator) -> Tensor:
    """W̄ = ϕ(Round_stoc(2^l_w W)) (Eq. 3), else as `quantise_data`."""
    return to_field(field, round_stochastic(weights.double() * 2.0**bits, draws), "the weights", bits)


def to_field(field: Field, integers: Tensor, whose: str, bits: int) -> Tensor:
    """ϕ: x where x >= 0, p + x where x < 0, of scaled integers; `whose` and `bits` (their scale) are for the error.

    Raises InputError if an integer is not finite, or leaves ±p/2.
    """
    largest = float(integers.abs().max()) if integers.numel() else 0.0  # nan, where there is one
    if not math.isfinite(largest):
        raise InputError(f"{whose} have a number that is not finite", hint="look for gaps, or for a step too large")
    if largest > field.p // 2:
        raise InputError(
            f"{whose} reach {largest / 2.0**bits:g}, which with {bits} bits leaves ±p/2 for p = {field.p}",
            hint="scale them down, use fewer bits, or take a larger p",
        )
    whole = integers.long()
    return torch.where(whole < 0, whole + field.p, whole)


def from_field(field: Field, elements: Tensor) -> Tensor:
    """ϕ⁻¹: the integers of -(p - 1)/2 .. (p - 1)/2, int64."""
    return torch.where(elements > field.p // 2, elements - field.p, elements)


def dequantise(field: Field, elements: Tensor, bits: int, parties: int) -> Tensor:
    """φ (Eq. 7): the average over `parties` from their sum, with `bits` = l_x + l_w; float64."""
    return from_field(field, elements).double() * (2.0**-bits / parties)


def sum_bound(field: Field, data: Tensor, weights: Tensor) -> int:
    """Bound on the magnitude of the entries of X̄ W̄: the largest over outputs j of Σ_i max|X̄_·i| |W̄_ij|.

    In quantised integers, exact up to 2^53. It costs one pass over each, and is attained by a row with every column's
    maximum and the signs of some W̄_·j. It is a function of a party's private rows and weights: sending it is a
    release.

    Args:
        data: X̄, elements (m, d); all powers concatenated, if any.
        weights: W̄, elements (d, h).
    """
    if not data.numel() or not weights.numel():
        return 0
    columns = from_field(field, data).abs().amax(0).double()
    return int((columns @ from_field(field, weights).abs().double()).max())


def headroom(field: Field, bounds: Iterable[int]) -> float:
    """Ratio of p/2 to the largest sum of the parties' parts (`sum_bound` of each): from 1 on, no sum can wrap."""
    total = sum(bounds)
    return (field.p // 2) / total if total else math.inf


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

        Raises InputError if a number is not finite.
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
