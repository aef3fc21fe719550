"""Names of dtypes as torch's own, and bytes as tensors, for message content that is neither a number nor a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.common.messaging.message import Dtype

DTYPES: Mapping[Dtype, torch.dtype] = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}


def to_tensor(content: bytes) -> Tensor:
    """uint8 (bytes,)."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def to_bytes(tensor: Tensor) -> bytes:
    """The bytes of a uint8 tensor."""
    return tensor.contiguous().numpy().tobytes()


def lay_out(pieces: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Concatenates pieces: uint8 (bytes,), and the length of each, int64 (pieces,)."""
    lengths = torch.tensor([len(piece) for piece in pieces], dtype=torch.int64)
    return torch.cat([*pieces, torch.empty(0, dtype=torch.uint8)]), lengths


def take_apart(flat: Tensor, lengths: Tensor) -> list[Tensor]:
    """Splits the bytes that `lay_out` concatenated. Raises ValueError if the lengths do not add up."""
    sizes = lengths.tolist()
    if any(size < 0 for size in sizes) or sum(sizes) != len(flat):
        raise ValueError(f"lengths that add up to {len(flat)} bytes, not {sizes}")
    return list(torch.split(flat, sizes))
