"""Fewer bits on the way down: what the server's links do to messages before they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field

from common.data.rows import generator
from common.message import M, tensor_specs
from common.numerics.quantise import WHOLE, WIDTHS, Packed, pack, unpack
from common.section import Section


def _check_bits(value: int) -> int:
    if value not in WIDTHS:
        raise ValueError(f"expected one of {', '.join(map(str, WIDTHS))}")
    return value


Bits = Annotated[int, AfterValidator(_check_bits)]


class CompressConfig(Section):
    """Bits of an entry in tensors of float32: 1 to 8 on a scale of their own, 16 as halves, 32 as they are."""

    up: Bits = Field(default=WHOLE, description="from a party")
    down: Bits = Field(default=WHOLE, description="to a party")


class Compressor:
    """Quantises every float32 tensor of a message.

    What is drawn for the rounding depends on the seed, the receiver, the message's kind and round
    alone: a repeated round repeats every bit.

    Args:
        bits: of an entry; 32 changes nothing.
        seed: the federation's.
        to: the receiver.
    """

    def __init__(self, bits: int, seed: int, to: str) -> None:
        self._bits, self._seed, self._to = bits, seed, to

    def __call__(self, message: M) -> M:
        """The message as its receiver gets it. Raises InputError."""
        if self._bits == WHOLE:
            return message
        draws = generator("rounding", self._seed, self._to, type(message).__name__, message.round)
        packed: dict[str, Packed] = {}
        values: dict[str, Any] = {}
        for name, spec in tensor_specs(type(message)):
            if spec.dtype == torch.float32:
                packed[name] = pack(getattr(message, name), self._bits, draws)
                values[name] = unpack(packed[name])
        return replace(message, packed=packed, **values)
