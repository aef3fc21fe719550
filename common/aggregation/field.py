"""The prime field F_p on tensors: int64 elements of [0, p), and matrix products of them through BLAS.

Integer products have no BLAS on a CPU and no kernel at all on CUDA. The smaller operand is therefore split into two
limbs of half the bits,

    b = B b₁ + b₀,    B > √(2p),    |b₀|, |b₁| ≤ B/2,

and one float64 product multiplies a by both. A sum of integers is exact in float64, in any order, as long as it cannot
leave ±2⁵³: the inner dimension is cut into chunks within this bound, and each chunk's sum is reduced to ±p/2. A chunk
holds 23168 terms for p = 2²⁶ - 5 and 127 for p = 2³¹ - 1.

Masks are uniform elements from the system's randomness: a ChaCha20 keystream is cut into words, words into candidates
of as many bits as p - 1, and a candidate that is p or more is discarded. The others are exactly uniform on [0, p); a
remainder modulo p would not be.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.aggregation.integers import LARGEST, PrimeField
from colonnade.common.errors import InputError

_SHORT = 2  # terms: a model with one mask
_EXACT = 2**53  # float64 holds every integer up to here
CACHED = {"cpu": 2**15}  # numbers of a block that fits the cache; also too few for torch to use several threads
BLOCK = 2**24  # on other devices: large, since a kernel launch costs more than its passes


class Field(PrimeField):
    """The integers modulo p, an odd prime up to 2³¹ - 1, so that a product of two elements fits into 63 bits."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        total = x + y
        return torch.where(total >= self.p, total - self.p, total)

    def matmul(self, left: Tensor, right: Tensor) -> Tensor:
        """left @ right modulo p, int64 (..., m, n).

        Args:
            left: elements (..., m, k).
            right: elements (..., k, n), on the same device; leading dimensions broadcast.
        """
        lead = _check(left, right)
        if self._short(left):
            return self._remainder(torch.matmul(left, right))
        out = torch.empty((*lead, left.shape[-2], right.shape[-1]), dtype=torch.int64, device=right.device)
        self._into(out, left.expand(*lead, -1, -1), right.expand(*lead, -1, -1))
        return out

    def _short(self, left: Tensor) -> bool:
        """True if one integer product is exact, and short enough to be cheaper than float passes."""
        terms = left.shape[-1]
        exact = terms * (self.p - 1) ** 2 < 2**63
        return left.device.type == "cpu" and exact and 0 < terms <= _SHORT

    def _remainder(self, x: Tensor) -> Tensor:
        """Reduces integers in [0, 2⁶³) to [0, p). Modulo 2³¹ - 1, 2³¹ is 1, so no division is needed."""
        if self.p != LARGEST:
            return x % self.p
        for _ in range(2):
            x = (x & LARGEST) + (x >> 31)
        return torch.where(x >= LARGEST, x - LARGEST, x)

    def _into(self, out: Tensor, left: Tensor, right: Tensor) -> None:
        if out.dim() > 2:
            for place, one, other in zip(out, left, right, strict=True):
                self._into(place, one, other)
        elif left.numel() < right.numel():
            self._blocks(out.mT, right.mT, left.mT)  # the smaller one is split into limbs
        else:
            self._blocks(out, left, right)

    def _blocks(self, out: Tensor, whole: Tensor, split: Tensor) -> None:
        """out (m, n) = whole (m, k) @ split (k, n), a block of rows at a time."""
        base = math.isqrt(2 * self.p) + 1
        limbs = _limbs(split, base)
        room = _EXACT - 2**32  # the rest is for the sum of earlier chunks, and for rounding
        chunk = room // ((self.p - 1) * (base // 2))
        rows = max(1, CACHED.get(out.device.type, BLOCK) // max(1, limbs.shape[1]))
        for place, block in zip(torch.split(out, rows), torch.split(whole, rows), strict=True):
            high, low = self._product(block.double(), limbs, chunk, place).chunk(2, dim=1)
            place.copy_(self._elements(torch.add(low, high, alpha=base)))

    def _product(self, block: Tensor, limbs: Tensor, chunk: int, place: Tensor) -> Tensor:
        """block (r, k) @ limbs (k, 2n) modulo p, float64 in ±(p/2 + 2), in `place`'s memory layout (r, n)."""
        rows, width = len(block), limbs.shape[1]
        upright = place.stride(0) < place.stride(1)  # every part copied later is then contiguous
        total = block.new_zeros(width, rows).mT if upright else block.new_zeros(rows, width)
        for some, of_limbs in zip(torch.split(block, chunk, dim=1), torch.split(limbs, chunk), strict=True):
            self._centre(total.addmm_(some, of_limbs))
        return total

    def _centre(self, x: Tensor) -> Tensor:
        """Reduces integers up to 2⁵³ - 2³² to ±(p/2 + 2), in place."""
        return x.sub_((x * (1 / self.p)).round_(), alpha=self.p)

    def _elements(self, x: Tensor) -> Tensor:
        """Reduces integers up to 2⁴⁷ to [0, p), in place: half a unit outweighs the error of the quotient."""
        return x.sub_((x + 0.5).mul_(1 / self.p).floor_(), alpha=self.p)


def _limbs(x: Tensor, base: int) -> Tensor:
    """High and low limbs side by side, float64 (k, 2n), of elements (k, n)."""
    wide = x.double()
    limbs = wide.new_empty(len(x), 2 * x.shape[1])
    high, low = limbs.chunk(2, dim=1)
    torch.mul(wide, 1 / base, out=high).round_()
    torch.sub(wide, high, alpha=base, out=low)
    return limbs


def _check(left: Tensor, right: Tensor) -> tuple[int, ...]:
    if left.dtype != torch.int64 or right.dtype != torch.int64:
        raise InputError(
            f"a modular product of {left.dtype} and {right.dtype}: expected int64",
            hint="quantise numbers first (common/aggregation/fixed_point.py)",
        )
    try:
        if min(left.dim(), right.dim()) > 1 and left.shape[-1] == right.shape[-2]:
            return np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        pass
    raise InputError(
        f"a modular product of {tuple(left.shape)} and {tuple(right.shape)}: the shapes do not fit",
        hint="expected (..., m, k) and (..., k, n), leading dimensions equal or 1",
    )


Elements = Callable[[Sequence[int]], Tensor]  # returns a tensor of a shape, int64, uniform on [0, p)

_WORDS = 2**15  # at once: keystream and candidates stay in the cache
_ZEROS = bytes(4 * _WORDS)
_NONCE = bytes(16)  # every key is used for one stream


def secure_elements(p: int) -> Elements:
    """A source of unpredictable, unrepeatable elements, 2 <= p < 2^32: every tensor has a fresh key from the system."""
    return lambda shape: _tensor(p, shape, os.urandom(32))


def _tensor(p: int, shape: Sequence[int], key: bytes) -> Tensor:
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
    buffer = np.empty(_WORDS, np.uint32)
    drawn = np.empty(math.prod(shape), np.int64)
    done = 0
    while done < len(drawn):
        some = _candidates(stream, buffer[: len(drawn) - done], p)
        drawn[done : done + len(some)] = some
        done += len(some)
    return torch.from_numpy(drawn).reshape(tuple(shape))


def _candidates(stream: CipherContext, buffer: NDArray[np.uint32], p: int) -> NDArray[np.uint32]:
    """The next words of the keystream as candidates, without those that are p or more."""
    stream.update_into(_ZEROS[: buffer.nbytes], buffer.view(np.uint8).data)
    words = buffer.astype("<u4", copy=False)
    words &= np.uint32(2 ** (p - 1).bit_length() - 1)
    return words if int(words.max()) < p else words[words < p]
