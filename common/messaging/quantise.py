"""Tensors in the forms on which both ends agree (forms.py): few bits an entry, the largest entries, or their signs.

`pack` encodes a tensor, `unpack` decodes the tensor that the receiver reads.

On a uniform scale of b bits, entry x between low and high becomes the code

    q = floor(y + u),    y = (x - low) / (high - low) (2^b - 1),    u uniform on [0, 1)

so that the expectation of the decoded value is x, or the code that is nearest to y. low and high are decoded exactly.
y is cut off after 16 bits, and u is an odd multiple of 2^-16: the expectation is within 2^-16 of a step of x.
Single precision adds less than 2^-20 of the range to that. For large tensors u is AES in counter mode, under a key that
the generator draws; for small ones the generator draws it itself.

Computation is done in blocks that fit a core's second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.messaging.forms import Coded, Form, Largest, Packed, Signs

BLOCK = 1 << 16  # entries; whole groups
_WIDE = 1 << 12  # contiguous entries, for fast minima
_FRACTION = 16  # bits of y below the code
_FEW = 1 << 13
_ODD = 0x0001_0001_0001_0001
_ZEROS = bytes(2 * BLOCK)
_SMALL, _LARGE = 2.0**-100, 2.0**127  # between these a range is usable in single precision


class Scale:
    """Ends of a scale of codes.

    Args:
        ends: values of the codes 0 and 2^b - 1, finite, float32 (2, columns); a single column is for all entries.
    """

    def __init__(self, ends: np.ndarray) -> None:
        exact = np.subtract(ends[1], ends[0], dtype=np.float64)
        self.ends, self.span = ends, exact + (exact == 0)  # to divide by
        single = ((self.span > _SMALL) & (self.span < _LARGE)).all()
        dtype = np.float32 if single else np.float64
        self.low, self.high = ends.astype(dtype, copy=False)
        self.range = exact.astype(dtype, copy=False)  # as if single precision had subtracted

    @classmethod
    def of(cls, values: np.ndarray, columns: int) -> Scale:
        """The smallest and largest entry of every column of float32 (rows * columns,); 1 column for one scale."""
        ends = _ends(values, columns) if len(values) else np.zeros((2, columns), np.float32)
        if not np.isfinite(ends).all():
            raise InputError("a number is not finite, and has no place on a scale", hint="send 32 bits")
        return cls(ends)

    @classmethod
    def about_zero(cls, values: np.ndarray) -> Scale:
        """A scale from -s to s, s the largest magnitude. As `of`, for one scale."""
        magnitude = np.abs(cls.of(values, 1).ends).max(0, keepdims=True)
        return cls(np.concatenate((-magnitude, magnitude)))

    def encode(self, values: np.ndarray, bits: int, draws: torch.Generator | None) -> np.ndarray:
        """Codes in bytes without gaps, uint8.

        Args:
            values: from low to high, float32 (rows * columns,).
            bits: 1 to 8.
            draws: the key of u, on the CPU; None rounds to the nearest code.
        """
        blocks = _Blocks(len(values), self)
        rounding: _Rounding = _Nearest(bits) if draws is None else _Stochastic(bits, draws, blocks.size)
        low, factor = blocks.spread(self.low), blocks.spread(_factor(rounding.top, self))
        data = np.empty(-(-len(values) * bits // 8), np.uint8)
        codes = np.empty(blocks.size, np.uint8)
        for entries, scales in blocks:
            y = blocks.numbers[: entries.stop - entries.start]
            np.subtract(values[entries], low[scales], out=y)
            np.multiply(y, factor[scales], out=y)
            rounding.round(y, codes[: len(y)])
            codes[len(y) :] = 0
            place = data[_bytes(entries, bits)]
            place[:] = join(codes, bits)[: len(place)]
        return data

    def decode(self, data: np.ndarray, bits: int, count: int) -> np.ndarray:
        """The values of `count` codes, float32 (count,)."""
        blocks = _Blocks(count, self)
        low, high = blocks.spread(self.low), blocks.spread(self.high, beside=True)
        step = blocks.spread(_step(2**bits - 1, self))
        values = np.empty(count, np.float32)
        for entries, scales in blocks:
            y = blocks.numbers[: entries.stop - entries.start]
            np.copyto(y, split(data[_bytes(entries, bits)], bits)[: len(y)])
            np.multiply(y, step[scales], out=y)
            np.add(y, low[scales], out=y)
            np.minimum(y, high[scales], out=values[entries], casting="same_kind")
        return values


class _Blocks:
    """The blocks of a tensor of `count` entries, and scales repeated along them."""

    def __init__(self, count: int, scale: Scale) -> None:
        self.size = min(BLOCK, -(-count // GROUP) * GROUP)
        self.numbers = np.empty(self.size, scale.range.dtype)
        self._count, self._columns = count, len(scale.low)

    def spread(self, values: np.ndarray, beside: bool = False) -> np.ndarray:
        """One value a column, repeated along entries; a single value is repeated only if `beside` is set."""
        if self._columns == 1:
            return np.full(self.size, values) if beside else values
        return np.tile(values, self.size // max(self._columns, 1) + 2)

    def __iter__(self) -> Iterator[tuple[slice, slice]]:
        """Places of entries in the tensor, and of their columns in the result of `spread`."""
        for start in range(0, self._count, BLOCK):
            stop, column = min(start + BLOCK, self._count), start % self._columns
            yield slice(start, stop), slice(column, column + stop - start)


class _Rounding(Protocol):
    """From y to codes; `top` is the value of y at the upper end."""

    top: int

    def round(self, y: np.ndarray, codes: np.ndarray) -> None:
        """Fills codes, uint8; y is overwritten."""


class _Nearest:
    def __init__(self, bits: int) -> None:
        self.top = 2**bits - 1

    def round(self, y: np.ndarray, codes: np.ndarray) -> None:
        np.rint(y, out=y)
        np.copyto(codes, y, casting="unsafe")


class _Stochastic:
    """y has 16 bits below the code. At the upper end it is `top` or one less, which an odd u makes up for."""

    def __init__(self, bits: int, draws: torch.Generator, size: int) -> None:
        self.top = 2**bits - 1 << _FRACTION
        self._whole = np.empty(size, np.int32)
        self._words = odd_words(draws, size)

    def round(self, y: np.ndarray, codes: np.ndarray) -> None:
        whole = self._whole[: len(y)]
        np.copyto(whole, y, casting="unsafe")
        np.add(whole, next(self._words)[: len(y)], out=whole)
        np.right_shift(whole, _FRACTION, out=whole)
        np.copyto(codes, whole, casting="unsafe")


def odd_words(draws: torch.Generator, size: int) -> Iterator[np.ndarray]:
    """2^16 u for one block after the other, uint16 (size,)."""
    if size <= _FEW:  # drawing them is faster than creating a cipher
        yield torch.empty(size // 4, dtype=torch.int64).random_(-(2**63), None, generator=draws).numpy().view("<u2") | 1
        return
    key = torch.empty(2, dtype=torch.int64).random_(-(2**63), None, generator=draws)
    stream = Cipher(AES(key.numpy().tobytes()), CTR(bytes(16))).encryptor()
    zeros, words = memoryview(_ZEROS)[: 2 * size], np.empty(size, "<u2")
    while True:
        stream.update_into(zeros, words.view(np.uint8).data)
        words.view(np.uint64)[:] |= _ODD
        yield words


def _ends(values: np.ndarray, columns: int) -> np.ndarray:
    if columns == 1:
        blocks = [values[start : start + BLOCK] for start in range(0, len(values), BLOCK)]
        ends = np.array([(block.min(), block.max()) for block in blocks])  # in the cache the second time
        return ends.T if len(blocks) == 1 else np.array([[ends[:, 0].min()], [ends[:, 1].max()]])
    side = max(_WIDE // columns, 1)  # rows in one contiguous run
    folded = len(values) // (side * columns) * side * columns
    parts = [values[:folded].reshape(-1, side * columns), values[folded:].reshape(-1, columns)]
    lows = [part.min(0).reshape(-1, columns).min(0) for part in parts if part.size]
    highs = [part.max(0).reshape(-1, columns).max(0) for part in parts if part.size]
    return np.stack((np.min(lows, 0), np.max(highs, 0)))


def _factor(top: int, scale: Scale) -> np.ndarray:
    """Factor from x - low to y, such that y is at most `top` at the upper end."""
    factor: np.ndarray = (top / scale.span).astype(scale.range.dtype, copy=False)
    return np.where(scale.range * factor > top, np.nextafter(factor, 0), factor)


def _step(top: int, scale: Scale) -> np.ndarray:
    """Step from one code to the next, slightly longer where rounding would leave the last one below the upper end."""
    step: np.ndarray = scale.range / scale.range.dtype.type(top)
    return np.where(scale.low + step * top < scale.high, step * (1 + 2.0**-22), step)


def _bytes(entries: slice, bits: int) -> slice:
    return slice(entries.start * bits // 8, -(-entries.stop * bits // 8))


# Codes are packed in groups of eight, which fill whole bytes at every width.
GROUP = 8

_LANES = tuple(np.dtype(name) for name in ("<u2", "<u4", "<u8"))  # of 2, 4 and 8 codes
_EVEN = {4: _LANES[0], 2: _LANES[1], 1: _LANES[2]}  # a lane of as many codes as a byte holds


def join(codes: np.ndarray, bits: int) -> np.ndarray:
    """Bytes, uint8 (n bits / 8,), of codes below 2^bits, uint8 (n,), where n is a multiple of `GROUP`."""
    if bits == 8:
        return codes
    if bits not in _EVEN:
        return _join_odd(codes, bits)
    lane = _EVEN[bits]
    high = 8 * lane.itemsize - 8
    # Code i lies at bit 8 i and is wanted at bit high + 8 - bits (i + 1); no two terms share a bit.
    gather = sum(1 << (high + 8 - bits * (place + 1) - 8 * place) for place in range(lane.itemsize))
    return np.asarray(codes.view(lane) * gather >> high).astype(np.uint8)


def split(data: np.ndarray, bits: int) -> np.ndarray:
    """The codes, uint8 (n,), that `join` packed into these bytes; an incomplete group at the end counts as whole."""
    if bits == 8:
        return data
    if bits not in _EVEN:
        return _split_odd(data, bits)
    lane = _EVEN[bits]
    spread = sum(1 << (8 + bits) * place for place in range(lane.itemsize))
    mask = sum(2**bits - 1 << 8 * place for place in range(lane.itemsize))
    return np.asarray((data.astype(lane) * spread >> 8 - bits) & mask).view(np.uint8)


def _join_odd(codes: np.ndarray, bits: int) -> np.ndarray:
    words = codes
    for stage, lane in enumerate(_LANES):  # merges neighbours, three times
        pairs, half = words.view(lane), 8 << stage
        words = (pairs & (1 << half) - 1) << (bits << stage) | pairs >> half
    groups = words.view(np.uint8).reshape(-1, GROUP)
    data = np.empty((len(groups), bits), np.uint8)
    for place in range(bits):
        data[:, place] = groups[:, bits - 1 - place]
    return data.reshape(-1)


def _split_odd(data: np.ndarray, bits: int) -> np.ndarray:
    rows = np.zeros((-(-len(data) // bits), bits), np.uint8)
    rows.reshape(-1)[: len(data)] = data
    groups = np.zeros((len(rows), GROUP), np.uint8)
    for place in range(bits):
        groups[:, bits - 1 - place] = rows[:, place]
    words: np.ndarray = groups.reshape(-1)
    for stage, lane in reversed(list(enumerate(_LANES))):
        pairs, low = words.view(lane), bits << stage
        words = pairs >> low | (pairs & (1 << low) - 1) << (8 << stage)
    return words.view(np.uint8)


_NO_NUMBERS, _NO_PLACES = np.empty(0, np.float32), np.empty(0, np.uint8)


def pack(tensor: Tensor, form: Form, draws: torch.Generator) -> Packed:
    """Encodes a float32 tensor of finite numbers in a form other than `AS_IS`.

    Args:
        draws: for random rounding, on the CPU.

    Raises InputError if a number is too large for half precision, or not finite.
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


def _halves(values: np.ndarray) -> np.ndarray:
    halves = torch.from_numpy(values).half()  # several times as fast as NumPy
    if not bool(torch.isfinite(halves).all()):
        raise InputError("a number is not finite in half precision", hint="send more bits in this direction")
    return halves.numpy().astype("<f2", copy=False).view(np.uint8)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
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
