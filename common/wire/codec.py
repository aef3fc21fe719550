"""Encoding of a contract's messages in protobuf: a field's number is its position in the dataclass, from 1.

proto/ contains the generated schema, for implementations in other languages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from colonnade.common.messaging.forms import AS_IS, Form, Packed
from colonnade.common.messaging.message import Kinds, Message, TensorSpec, one_of, schema
from colonnade.common.messaging.quantise import unpack
from colonnade.common.wire.tensors import (
    EIGHT_BYTES,
    LENGTH,
    VARINT,
    Buffer,
    WireError,
    nested,
    packed_parts,
    read_fields,
    read_tensor,
    tag,
    tensor_parts,
    varint,
)

_WIRE_TYPES: Mapping[type, int] = {int: VARINT, bool: VARINT, float: EIGHT_BYTES, str: LENGTH}


class Letter(NamedTuple):
    """A received message that is not decoded yet; `decode` raises WireError if a field is missing or malformed."""

    kind: str
    round: int
    decode: Callable[[], Message]


class Codec:
    """Turns the messages of one protocol into bytes and back.

    Args:
        kinds: the messages of its contract by name.
        incoming: agreed wire form of received float32 tensors; or by kind.
        limits: maximum size of every dimension. Few bytes on the wire may be many in memory, so packed tensors are
            checked against them before they are unpacked. None disables the check.
    """

    def __init__(
        self,
        kinds: Kinds,
        incoming: Form | Mapping[str, Form] = AS_IS,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.kinds, self._limits = kinds, limits
        self._incoming = incoming if isinstance(incoming, Mapping) else dict.fromkeys(kinds, incoming)
        self._numbers = {name: field_numbers(kind) for name, kind in kinds.items()}
        self._names = {
            kind: {number: name for name, number in fields.items()} for kind, fields in self._numbers.items()
        }

    def encode(self, message: Message) -> list[Buffer]:
        """The message's bytes in pieces that share the tensors' memory: join them before it changes."""
        kind = type(message)
        parts: list[Buffer] = []
        for name, spec in schema(kind).items():
            number = self._numbers[kind.__name__][name]
            if name in message.packed:
                parts += nested(number, packed_parts(message.packed[name]))
            else:
                parts += _field(number, spec, getattr(message, name))
        return parts

    def decode(self, kind: str, body: memoryview) -> Message:
        """Decodes a message. Raises WireError."""
        return self.letter(kind, body).decode()

    def letter(self, kind: str, body: memoryview) -> Letter:
        """Splits a message into its fields without decoding them. Raises WireError for unknown kinds and fields."""
        if kind not in self.kinds:
            raise WireError(one_of(self.kinds), "an undeclared kind", kind[:80] or "a letter")
        names = self._names[kind]
        came: dict[str, tuple[int, int | memoryview]] = {}
        for number, wire_type, value in read_fields(body):
            name = names.get(number)
            if name is None or name in came:
                raise WireError("every declared field once", f"field {number} {'twice' if name else 'too'}", kind)
            came[name] = (wire_type, value)
        round = came.get("round", (VARINT, 0))[1]
        return Letter(kind, round if isinstance(round, int) else 0, lambda: self._decode(kind, came))

    def _decode(self, kind: str, came: Mapping[str, tuple[int, int | memoryview]]) -> Message:
        specs = schema(self.kinds[kind])
        values: dict[str, Any] = {}
        packed: dict[str, Packed] = {}
        for name, (wire_type, value) in came.items():
            values[name] = _value(f"{kind}.{name}", specs[name], wire_type, value, self._incoming[kind])
            if isinstance(values[name], Packed):
                packed[name] = values[name]
                self._refuse_large(f"{kind}.{name}", specs[name], values[name].shape)
                values[name] = unpack(values[name])
        for name, spec in specs.items():
            if name not in values:  # protobuf leaves out zeros and empty strings, never tensors
                if isinstance(spec, TensorSpec):
                    raise WireError(str(spec), "nothing", f"{kind}.{name}")
                values[name] = spec()
        return self.kinds[kind](**values, packed=packed)

    def _refuse_large(self, field: str, spec: TensorSpec | type, shape: tuple[int, ...]) -> None:
        if self._limits is None or not isinstance(spec, TensorSpec):
            return
        if len(shape) != len(spec.dims) or any(n > self._limits[d] for d, n in zip(spec.dims, shape, strict=True)):
            allowed = ", ".join(f"{dim} <= {self._limits[dim]}" for dim in spec.dims)
            raise WireError(f"{spec} with {allowed}", f"shape {shape}", field)


def field_numbers(kind: type[Message]) -> dict[str, int]:
    """Wire number of every field."""
    return {name: number for number, name in enumerate(schema(kind), 1)}


def _field(number: int, spec: TensorSpec | type, value: Any) -> list[Buffer]:
    if isinstance(spec, TensorSpec):
        return nested(number, tensor_parts(value))
    if spec is str:
        return nested(number, [value.encode()]) if value else []
    if spec is float:
        eight = struct.pack("<d", value)  # minus zero is sent explicitly
        return [tag(number, EIGHT_BYTES) + eight] if any(eight) else []
    if not 0 <= value < 1 << 32:
        raise ValueError(f"an integer field holds 0 to 2^32 - 1, not {value}")
    return [tag(number, VARINT) + varint(int(value))] if value else []


def _value(field: str, spec: TensorSpec | type, wire_type: int, value: int | memoryview, incoming: Form) -> Any:
    expected = LENGTH if isinstance(spec, TensorSpec) else _WIRE_TYPES[spec]
    if wire_type != expected:
        raise WireError(f"wire type {expected}", f"{wire_type}", field)
    if isinstance(value, int):
        if value >= 1 << 32:
            raise WireError("less than 2^32", f"{value}", field)
        return bool(value) if spec is bool else value
    if isinstance(spec, TensorSpec):
        return read_tensor(field, value, incoming if spec.dtype == "float32" else AS_IS)
    if spec is str:
        return _text(field, value)
    return struct.unpack("<d", value)[0]


def _text(field: str, value: memoryview) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as bad:
        raise WireError("UTF-8", "other bytes", field) from bad
