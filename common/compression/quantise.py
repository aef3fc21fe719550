"""Compressed forms of float32 tensors: few bits an entry, the largest entries alone, or their signs.

Both ends agree on a form. `pack` encodes a tensor in it, `unpack` decodes the tensor that the receiver reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from colonnade.common.compression.bits import GROUP, join, split
from colonnade.common.compression.scale import Scale
from colonnade.common.errors import InputError

HALF, WHOLE = 16, 32
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, HALF, WHOLE)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Coded:
    """A fixed number of bits an entry: 1 to 8 on a uniform scale (`Scale`), 16 as half precision, 32 unchanged.

    Args:
        bits: of an entry.
        nearest: True to round to the nearest code; else rounding is random.
        by_column: True for a scale of its own for every column (of the last dimension). Tensors of less than two
            dimensions have one scale.
        symmetric: True for a scale from -s to s, s the largest magnitude, so that one number defines it.
    """

    bits: int
    nearest: bool = False
    by_column: bool = False
    symmetric: bool = False

    def __str__(self) -> str:
        scale = " by column" if self.by_column else " symmetric" if self.symmetric else ""
        return f"{self.bits} bits{' nearest' if self.nearest else ''}{scale}"

    def columns(self, shape: Shape) -> int:
        """Number of scales of a tensor."""
        return shape[-1] if self.by_column and len(shape) > 1 else 1

    def size(self, shape: Shape) -> int:
        """Bytes of a tensor: its entries, and the ends of its scales as single-precision numbers."""
        ends = 0 if self.bits >= HALF else 1 if self.symmetric else 2 * self.columns(shape)
        return -(-math.prod(shape) * self.bits // 8) + 4 * ends


@dataclass(frozen=True)
class Largest:
    """The largest entries by magnitude, each as its place and its float32; the others are decoded as zeros.

    Args:
        share: of the entries, above 0 and below 1.
    """

    share: float

    def __str__(self) -> str:
        return f"top {self.share:g}"

    def count(self, shape: Shape) -> int:
        """k = ceil(share n) of n entries, with the share as it is written in decimals."""
        return _share_of(self.share, math.prod(shape))

    def places(self, shape: Shape) -> np.dtype[np.unsignedinteger]:
        """Integer type of a place: one byte up to 256 entries, two up to 65,536, else four."""
        entries = math.prod(shape)
        return np.dtype("<u1" if entries <= 1 << 8 else "<u2" if entries <= 1 << 16 else "<u4")

    def size(self, shape: Shape) -> int:
        """Bytes of a tensor: places and values."""
        return self.count(shape) * (4 + self.places(shape).itemsize)


@dataclass(frozen=True)
class Signs:
    """One bit an entry: the mean of |x| with the entry's sign; 0 counts as positive."""

    def __str__(self) -> str:
        return "sign"

    def size(self, shape: Shape) -> int:
        """Bytes of a tensor: its signs, and the mean as a single-precision number."""
        return -(-math.prod(shape) // 8) + 4


Form = Coded | Largest | Signs
AS_IS = Coded(WHOLE)


@dataclass(frozen=True)
class Packed:
    """A tensor in the form in which it is sent.

    Args:
        form: of the fields below.
        shape: of the tensor.
        data: codes, signs (1 is positive), or the bytes of half-precision numbers or of the largest entries' float32,
            little-endian; uint8 (bytes,).
        numbers: float32; a scale's (low, high), (2, columns), or high alone if it is symmetric, (1, 1); the mean of
            signs, (1,); else empty.
        places: of the largest entries in the tensor row by row, ascending, unsigned (k,); else empty.
    """

    form: Form
    shape: Shape
    data: np.ndarray
    numbers: np.ndarray
    places: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of the packed tensor."""
        return int(self.data.nbytes + self.numbers.nbytes + self.places.nbytes)


_NO_NUMBERS, _NO_PLACES = np.empty(0, np.float32), np.empty(0, np.uint8)


def pack(tensor: Tensor, form: Form, draws: torch.Generator) -> Packed:
    """Encodes a float32 tensor in a form other than `AS_IS`.

    Args:
        tensor: finite numbers of any shape.
        form: as both ends agreed.
        draws: for random rounding, on the CPU.

    Raises:
        InputError: a number is too large for half precision, or not finite.
    """
    shape = tuple(tensor.shape)
    values = tensor.detach().cpu().contiguous().numpy().reshape(-1)
    match form:
        case Coded(bits=16):
            return Packed(form, shape, _halves(values), _NO_NUMBERS, _NO_PLACES)
        case Coded():
            scale = Scale.about_zero(values) if form.symmetric else Scale.of(values, form.columns(shape))
            data = scale.encode(values, form.bits, None if form.nearest else draws)
            return Packed(form, shape, data, scale.ends[1:] if form.symmetric else scale.ends, _NO_PLACES)
        case Largest():
            places = _largest(values, form.count(shape)).astype(form.places(shape))
            return Packed(form, shape, values[places].astype("<f4").view(np.uint8), _NO_NUMBERS, places)
        case Signs():
            return Packed(form, shape, _signs(values), _mean(values), _NO_PLACES)


def unpack(packed: Packed) -> Tensor:
    """The decoded tensor, float32 in its shape."""
    form, count = packed.form, math.prod(packed.shape)
    match form:
        case Coded(bits=16):
            values = packed.data.view("<f2").astype(np.float32)
        case Coded():
            ends = np.concatenate((-packed.numbers, packed.numbers)) if form.symmetric else packed.numbers
            values = Scale(ends).decode(packed.data, form.bits, count)
        case Largest():
            values = np.zeros(count, np.float32)
            values[packed.places] = packed.data.view("<f4")
        case Signs():
            (mean,) = packed.numbers
            values = np.array([-mean, mean], np.float32).take(split(packed.data, 1)[:count])
    return torch.from_numpy(values.reshape(packed.shape))


@lru_cache(64)
def _share_of(share: float, entries: int) -> int:
    return math.ceil(Fraction(str(share)) * entries)


def _halves(values: np.ndarray) -> np.ndarray:
    halves = torch.from_numpy(values).half()  # several times as fast as NumPy
    if not bool(torch.isfinite(halves).all()):
        raise InputError("a number is not finite in half precision", hint="send more bits in this direction")
    return halves.numpy().astype("<f2", copy=False).view(np.uint8)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest magnitudes, ascending."""
    sizes = np.abs(values)
    _refuse_infinite(float(sizes.max(initial=0)))
    return np.sort(np.argpartition(sizes, len(sizes) - count)[len(sizes) - count :])


def _signs(values: np.ndarray) -> np.ndarray:
    codes = np.zeros(-(-len(values) // GROUP) * GROUP, np.uint8)
    np.greater_equal(values, 0, out=codes[: len(values)].view(np.bool_))
    return join(codes, 1)


def _mean(values: np.ndarray) -> np.ndarray:
    mean = float(np.abs(values).mean(dtype=np.float64)) if len(values) else 0.0
    _refuse_infinite(mean)
    return np.array([mean], np.float32)


def _refuse_infinite(number: float) -> None:
    if not math.isfinite(number):
        raise InputError("a number is not finite", hint="send 32 bits")
