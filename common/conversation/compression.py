"""Compression of messages before they are sent, as `federation.compress` says (common/config/compression.py)."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from colonnade.common.config.compression import CompressConfig, form_of
from colonnade.common.data.draws import Draws
from colonnade.common.messaging.forms import AS_IS, Form, Packed
from colonnade.common.messaging.message import Kinds, M, schema, tensor_specs
from colonnade.common.messaging.quantise import pack, unpack


def arriving(compress: CompressConfig, kinds: Kinds) -> dict[str, Form]:
    """Form of a party's tensors by the kind of message; evaluations are the kinds with a `part`."""
    ways = {True: compress.evaluations, False: form_of(compress.up)}
    return {name: ways["part" in schema(kind)] for name, kind in kinds.items()}


class Compressor:
    """Packs every float32 tensor of a message in an agreed form.

    Random rounding depends only on the sender's own draws, the receiver, the message's kind and round and the tensor's
    bytes: a repeated round repeats every bit, and no two turns of a round are rounded alike.
    """

    def __init__(self, form: Form, draws: Draws, to: str) -> None:
        self._form, self._draws, self._to = form, draws, to

    def __call__(self, message: M) -> M:
        """The compressed message."""
        if self._form == AS_IS:
            return message
        about = (self._to, type(message).__name__, message.round)
        packed: dict[str, Packed] = {}
        values: dict[str, Any] = {}
        for name, spec in tensor_specs(type(message)):
            if spec.dtype == "float32":
                tensor = getattr(message, name).detach().cpu().contiguous()
                draws = self._draws.generator("rounding", *about, name, zlib.crc32(tensor.numpy().data))
                packed[name] = pack(tensor, self._form, draws)
                values[name] = unpack(packed[name])
        return replace(message, packed=packed, **values)
