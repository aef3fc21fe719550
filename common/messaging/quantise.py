"""Tensors in the forms on which both ends agree (forms.py): few bits an entry, the largest entries, or their signs.

`pack` encodes a tensor, `unpack` decodes the tensor that the receiver reads.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.messaging.forms import Coded, Form, Largest, Packed, Signs
from colonnade.common.messaging.scale import GROUP, Scale, join, split

_NO_NUMBERS, _NO_PLACES = np.empty(0, np.float32), np.empty(0, np.uint8)


def pack(tensor: Tensor, form: Form, draws: torch.Generator) -> Packed:
    """Encodes a float32 tensor of finite numbers in a form other than `AS_IS`.

    Args:
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
