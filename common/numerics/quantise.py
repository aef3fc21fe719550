"""Tensors in few bits an entry: a uniform scale with stochastic rounding, or half precision.

With b bits, entry x of a tensor between low and high becomes the code

    q = floor((x - low) / (high - low) (2^b - 1) + u),    u uniform on [0, 1)

so that the expectation of what comes back is x, low and high come back exactly, and nothing moves
by more than one step. Codes are packed without gaps, the highest bit first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.errors import InputError

HALF, WHOLE = 16, 32
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, HALF, WHOLE)


@dataclass(frozen=True)
class Packed:
    """A tensor as it travels.

    Args:
        bits: of an entry: 1 to 8, or 16 for half precision.
        low, high: values of the codes 0 and 2^bits - 1; 0 for half precision.
        shape: of the tensor.
        data: the packed codes, or the halves' bytes, little-endian; uint8 (bytes,).
    """

    bits: int
    low: float
    high: float
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def nbytes(self) -> int:
        """What the tensor costs: its entries, and the ends of its scale as single-precision numbers."""
        return int(self.data.nbytes) + (0 if self.bits == HALF else 8)


def packed_size(shape: tuple[int, ...], bits: int) -> int:
    """Bytes of so many entries."""
    return -(-math.prod(shape) * bits // 8)


def pack(tensor: Tensor, bits: int, draws: torch.Generator) -> Packed:
    """A float32 tensor in so many bits an entry.

    Args:
        tensor: finite numbers of any shape.
        bits: 1 to 8, or 16.
        draws: u, on the CPU.

    Raises:
        InputError: a number is too large for half precision, or not finite.
    """
    values, shape = tensor.detach().cpu(), tuple(tensor.shape)
    if bits == HALF:
        halves = values.half()
        if not bool(torch.isfinite(halves).all()):
            raise InputError("a number is not finite in half precision", hint="let more bits travel in this direction")
        return Packed(bits, 0.0, 0.0, shape, halves.contiguous().numpy().astype("<f2").reshape(-1).view(np.uint8))
    if not values.numel():
        return Packed(bits, 0.0, 0.0, shape, np.empty(0, np.uint8))
    low, high = (float(end) for end in values.aminmax())
    if not math.isfinite(high - low):
        raise InputError("a number is not finite, or too large to be scaled", hint="let 32 bits travel")
    scaled = (values.double() - low) / ((high - low) or 1.0) * (2**bits - 1)  # in this order high gives the last code
    codes = (scaled + torch.rand(shape, generator=draws)).floor_().clamp_(0, 2**bits - 1)
    return Packed(bits, low, high, shape, _pack_bits(codes.to(torch.uint8).reshape(-1).numpy(), bits))


def unpack(packed: Packed) -> Tensor:
    """What comes back, float32 in the tensor's shape."""
    if packed.bits == HALF:
        return torch.from_numpy(packed.data.view("<f2").astype(np.float32).reshape(packed.shape))
    codes = _unpack_bits(packed.data, packed.bits, math.prod(packed.shape))
    return torch.from_numpy(_levels(packed)[codes].reshape(packed.shape))


def _levels(packed: Packed) -> np.ndarray:
    """The value of every code; the ends are exact whatever rounding does between them."""
    levels = np.linspace(packed.low, packed.high, 2**packed.bits).astype(np.float32)
    levels[0], levels[-1] = packed.low, packed.high
    return levels


def _pack_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return codes
    return np.packbits(np.unpackbits(codes[:, None], axis=1)[:, 8 - bits :])


def _unpack_bits(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    if bits == 8:
        return data
    table = np.zeros((count, 8), np.uint8)
    table[:, 8 - bits :] = np.unpackbits(data, count=count * bits).reshape(count, bits)
    return np.packbits(table, axis=1).reshape(-1)
