"""Forms in which float32 tensors are sent, on which both ends agree: their names, sizes and contents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # forms are known without numpy
    import numpy as np

HALF, WHOLE = 16, 32
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, HALF, WHOLE)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Coded:
    """A fixed number of bits an entry: 1 to 8 on a uniform scale (`Scale`), 16 as half precision, 32 unchanged.

    Args:
        nearest: True to round to the nearest code; else rounding is random.
        by_column: True for one scale per column (of the last dimension). Tensors of fewer than two dimensions have one
            scale.
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
        return shape[-1] if self.by_column and len(shape) > 1 else 1

    def size(self, shape: Shape) -> int:
        """Bytes of a tensor: its entries, and the ends of its scales as single-precision numbers."""
        ends = 0 if self.bits >= HALF else 1 if self.symmetric else 2 * self.columns(shape)
        return -(-math.prod(shape) * self.bits // 8) + 4 * ends


@dataclass(frozen=True)
class Largest:
    """The largest entries, a share of all in (0, 1), each as its place and its float32; the others become zeros."""

    share: float

    def __str__(self) -> str:
        return f"top {self.share:g}"

    def count(self, shape: Shape) -> int:
        """k = ceil(share n) of n entries, with the share as it is written in decimals."""
        return _share_of(self.share, math.prod(shape))

    def places(self, shape: Shape) -> Literal["<u1", "<u2", "<u4"]:
        """Type of a place, as numpy writes it: one byte up to 256 entries, two up to 65,536, else four."""
        entries = math.prod(shape)
        return "<u1" if entries <= 1 << 8 else "<u2" if entries <= 1 << 16 else "<u4"

    def place_bytes(self, shape: Shape) -> int:
        return int(self.places(shape)[-1])

    def size(self, shape: Shape) -> int:
        return self.count(shape) * (4 + self.place_bytes(shape))


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
        data: codes, signs (1 is positive), or the bytes of half-precision numbers or of the largest entries' float32,
            little-endian; uint8 (bytes,).
        numbers: float32; a scale's (low, high), (2, columns), or high alone if it is symmetric, (1, 1); the mean of
            signs, (1,); else empty.
        places: of the largest entries, row by row, ascending, unsigned (k,); else empty.
    """

    form: Form
    shape: Shape
    data: np.ndarray
    numbers: np.ndarray
    places: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes + self.numbers.nbytes + self.places.nbytes)


@lru_cache(64)
def _share_of(share: float, entries: int) -> int:
    return math.ceil(Fraction(str(share)) * entries)
