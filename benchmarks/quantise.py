"""Tensors in few bits: gigabytes of float32 a second on one core, against copying them, and against torch.

64 MB are packed with random rounding and unpacked at four widths, in turn with a copy into new memory, which is the
least possible cost. torch has 8 bits an entry, rounded to the nearest on one scale (`quantize_per_tensor`), and gets
the ends of the scale from `aminmax`, like ours. A small message is packed and unpacked as the server does before it
sends; it is compared with the plain way to do that with arrays.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Figure, times
from colonnade.common.messaging.forms import Coded
from colonnade.common.messaging.quantise import pack, unpack

ENTRIES = 1 << 24
WIDTHS = (8, 4, 2, 1)
SMALL, ROUNDS = (64, 64), 100


def main() -> list[Figure]:
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(0)
    tensor = torch.randn(ENTRIES, generator=draws)
    return [*_widths(tensor, draws), _against_torch(tensor, draws), _small(draws)]


def _widths(tensor: Tensor, draws: torch.Generator) -> list[Figure]:
    forms = [Coded(bits) for bits in WIDTHS]
    packed = [pack(tensor, form, draws) for form in forms]
    copy, *ours = times(
        tensor.clone,
        *(lambda form=form: pack(tensor, form, draws) for form in forms),  # type: ignore[misc]
        *(lambda each=each: unpack(each) for each in packed),  # type: ignore[misc]
    )
    names = [f"{what} at {bits} bits" for what in ("packing", "unpacking") for bits in WIDTHS]
    bounds = [0.4] * len(WIDTHS) + [0.5] * len(WIDTHS)
    return [
        Figure(f"{name}, 64 MB", _rate(taken), bound, "GB/s", _rate(copy), "a copy", least=True)
        for name, taken, bound in zip(names, ours, bounds, strict=True)
    ]


def _rate(milliseconds: float) -> float:
    return 4 * ENTRIES / milliseconds / 1e6


def _against_torch(tensor: Tensor, draws: torch.Generator) -> Figure:
    def rival() -> Tensor:
        low, high = tensor.aminmax()
        scale = float(high - low) / 255
        return torch.quantize_per_tensor(tensor, scale, round(-float(low) / scale), torch.quint8)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # deprecated in torch
        theirs, ours = times(rival, lambda: pack(tensor, Coded(8, nearest=True), draws))
    name = "packing at 8 bits to the nearest, 64 MB"
    return Figure(name, _rate(ours), 0.3, "GB/s", _rate(theirs), "torch.quantize_per_tensor", least=True)


def _small(draws: torch.Generator) -> Figure:
    tensor, form = torch.randn(SMALL, generator=draws), Coded(4)

    def ours() -> None:
        for _ in range(ROUNDS):
            unpack(pack(tensor, form, draws))

    def plain() -> None:
        for _ in range(ROUNDS):
            _plainly(tensor, 4, draws)

    floor, taken = (1e3 / ROUNDS * each for each in times(plain, ours))
    return Figure("64 x 64 at 4 bits, there and back", taken, 1.0, "us", floor, "plain array operations")


def _plainly(tensor: Tensor, bits: int, draws: torch.Generator) -> np.ndarray:
    """The same without blocks and shifts: every bit is a byte in between."""
    low, high = (float(end) for end in tensor.aminmax())
    scaled = (tensor.double() - low) / (high - low) * (2**bits - 1)
    codes = (scaled + torch.rand(tensor.shape, generator=draws)).floor_().clamp_(0, 2**bits - 1)
    data = np.packbits(np.unpackbits(codes.to(torch.uint8).reshape(-1, 1).numpy(), axis=1)[:, 8 - bits :])
    table = np.zeros((tensor.numel(), 8), np.uint8)
    table[:, 8 - bits :] = np.unpackbits(data, count=tensor.numel() * bits).reshape(-1, bits)
    levels = np.linspace(low, high, 2**bits).astype(np.float32)
    return np.asarray(levels[np.packbits(table, axis=1)]).reshape(tensor.shape)
