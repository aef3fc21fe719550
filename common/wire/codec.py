"""Binds the messages of a contract to the protobuf messages of the same names, field by field.

Tensors travel as raw little-endian bytes with dtype and shape; they are copied once on the way
out (into the frame) and once on the way in (out of it).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from google.protobuf.message import Message as ProtoMessage
from torch import Tensor

from common.message import DTYPES, Kinds, Message, TensorSpec, declared, dtype_name, schema
from common.numerics.quantise import HALF, WHOLE, Packed, packed_size, unpack
from common.wire._generated import (
    agg_vfl_pb2,
    agreement_pb2,
    blinded_pb2,
    c_vfl_pb2,
    centralized_pb2,
    czofo_pb2,
    fdml_pb2,
    fedbcd_pb2,
    fedvs_pb2,
    linear_admm_pb2,
    pairs_pb2,
    split_avg_pb2,
    split_pb2,
    tensor_pb2,
    vafl_pb2,
    vfedmh_pb2,
    vimadmm_j_pb2,
    vimadmm_pb2,
)
from common.wire.fields import (
    EIGHT_BYTES,
    LENGTH,
    VARINT,
    Buffer,
    WireError,
    nested,
    read_fields,
    read_varint,
    tag,
    varint,
)

# One .proto file a protocol that has messages, by the protocol's name; protocols that say the same share one.
PROTOS: Mapping[str, ModuleType] = {
    "split": split_pb2,
    "split_avg": split_avg_pb2,
    "fedbcd": fedbcd_pb2,
    "fdml": fdml_pb2,
    "c_vfl": c_vfl_pb2,
    "vafl": vafl_pb2,
    "czofo": czofo_pb2,
    "zoo_vfl": pairs_pb2,
    "syn_zoo_vfl": pairs_pb2,
    "vimadmm": vimadmm_pb2,
    "vimadmm_j": vimadmm_j_pb2,
    "vfedmh": vfedmh_pb2,
    "centralized": centralized_pb2,
    "linear_admm": linear_admm_pb2,
    "agg_vfl": agg_vfl_pb2,
    "fedvs": fedvs_pb2,
}

# What several protocols say in the same way.
SHARED: tuple[ModuleType, ...] = (agreement_pb2, blinded_pb2)

_WIRE_TYPES: Mapping[type, int] = {int: VARINT, bool: VARINT, float: EIGHT_BYTES, str: LENGTH}
_CODE_OF = {dtype: tensor_pb2.Tensor.Dtype.Value(name.upper()) for name, dtype in DTYPES.items()}
_DTYPE_OF = {code: dtype for dtype, code in _CODE_OF.items()}
_NUMPY_OF = {dtype: np.dtype(name).newbyteorder("<") for name, dtype in DTYPES.items()}
_MAX_DIMS, _MAX_ELEMENTS = 8, 1 << 32
_LARGEST = torch.finfo(torch.float32).max


class Codec:
    """Turns the messages of one protocol into bytes and back.

    Args:
        protocol: its name, as in `PROTOS`.
        kinds: the messages of its contract by name.
        incoming: bits that an entry of a float32 tensor has when it comes, as agreed.
        limits: the largest value of every dimension name: few bits on the wire are many in memory, so that
            packed tensors are held against them before they are unpacked. None checks nothing here.
    """

    def __init__(
        self, protocol: str, kinds: Kinds, incoming: int = WHOLE, limits: Mapping[str, int] | None = None
    ) -> None:
        self.kinds, self._incoming, self._limits = kinds, incoming, limits
        self._numbers = {name: _field_numbers(PROTOS[protocol], name) for name in kinds}
        self._names = {
            kind: {number: name for name, number in fields.items()} for kind, fields in self._numbers.items()
        }

    def encode(self, message: Message) -> list[Buffer]:
        """The message's bytes in pieces, the tensors' own memory among them: join before it changes."""
        kind = type(message)
        parts: list[Buffer] = []
        for name, spec in schema(kind).items():
            number = self._numbers[kind.__name__][name]
            if name in message.packed:
                parts += nested(number, _packed_parts(message.packed[name]))
            else:
                parts += _field(number, spec, getattr(message, name))
        return parts

    def decode(self, kind: str, body: memoryview) -> Message:
        """The message that these bytes hold.

        Raises:
            WireError: the kind is not declared, or a field is missing, twice, unknown or malformed.
        """
        if kind not in self.kinds:
            raise WireError(declared(self.kinds), "an undeclared kind", kind[:80] or "a letter")
        specs = schema(self.kinds[kind])
        names = self._names[kind]
        values: dict[str, Any] = {}
        packed: dict[str, Packed] = {}
        for number, wire_type, value in read_fields(body):
            name = names.get(number)
            if name is None or name in values:
                raise WireError("every declared field once", f"field {number} {'twice' if name else 'too'}", kind)
            values[name] = _value(f"{kind}.{name}", specs[name], wire_type, value, self._incoming)
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


def _field_numbers(module: ModuleType, kind: str) -> dict[str, int]:
    own = next(place for place in (module, *SHARED) if hasattr(place, kind))
    proto: type[ProtoMessage] = getattr(own, kind)  # `kind` is our own contract's, not the wire's
    return {field.name: field.number for field in proto.DESCRIPTOR.fields}


def _tensor_parts(tensor: Tensor) -> list[Buffer]:
    array = tensor.detach().cpu().contiguous().numpy().astype(_NUMPY_OF[tensor.dtype], copy=False)
    head = tag(1, VARINT) + varint(_CODE_OF[tensor.dtype])
    shape = b"".join(varint(size) for size in tensor.shape)
    head += tag(2, LENGTH) + varint(len(shape)) + shape
    data = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return [head, *nested(3, [data])]


def _packed_parts(packed: Packed) -> list[Buffer]:
    half = packed.bits == HALF
    dtype = _CODE_OF[torch.float16 if half else torch.float32]
    shape = b"".join(varint(size) for size in packed.shape)
    head = tag(1, VARINT) + varint(dtype) + tag(2, LENGTH) + varint(len(shape)) + shape
    scale = b"" if half else tag(4, VARINT) + varint(packed.bits)
    for number, end in ((5, packed.low), (6, packed.high)):
        scale += tag(number, EIGHT_BYTES) + struct.pack("<d", end) if end else b""
    return [head, *nested(3, [packed.data.data if packed.data.size else b""]), scale]


def _field(number: int, spec: TensorSpec | type, value: Any) -> list[Buffer]:
    if isinstance(spec, TensorSpec):
        return nested(number, _tensor_parts(value))
    if spec is str:
        return nested(number, [value.encode()]) if value else []
    if spec is float:
        eight = struct.pack("<d", value)  # minus zero is a value like any other
        return [tag(number, EIGHT_BYTES) + eight] if any(eight) else []
    if not 0 <= value < 1 << 32:
        raise ValueError(f"an integer field holds 0 to 2^32 - 1, not {value}")
    return [tag(number, VARINT) + varint(int(value))] if value else []


def _value(field: str, spec: TensorSpec | type, wire_type: int, value: int | memoryview, incoming: int) -> Any:
    expected = LENGTH if isinstance(spec, TensorSpec) else _WIRE_TYPES[spec]
    if wire_type != expected:
        raise WireError(f"wire type {expected}", f"{wire_type}", field)
    if isinstance(value, int):
        if value >= 1 << 32:
            raise WireError("less than 2^32", f"{value}", field)
        return bool(value) if spec is bool else value
    if isinstance(spec, TensorSpec):
        return _tensor(field, value, incoming if spec.dtype == torch.float32 else WHOLE)
    if spec is str:
        return _text(field, value)
    return struct.unpack("<d", value)[0]


def _text(field: str, value: memoryview) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as bad:
        raise WireError("UTF-8", "other bytes", field) from bad


def _tensor(field: str, body: memoryview, incoming: int) -> Tensor | Packed:
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    data = memoryview(b"")
    bits = 0
    ends = {5: 0.0, 6: 0.0}
    seen: set[int] = set()
    for number, wire_type, value in read_fields(body):
        if number in seen:
            raise WireError("every field of a tensor once", f"field {number} twice", field)
        seen.add(number)
        if number == 1 and isinstance(value, int):
            dtype = _DTYPE_OF.get(value)
        elif number == 2 and wire_type == LENGTH and not isinstance(value, int):
            shape = _shape(field, value)
        elif number == 3 and wire_type == LENGTH and not isinstance(value, int):
            data = value
        elif number == 4 and isinstance(value, int):
            bits = value
        elif number in ends and wire_type == EIGHT_BYTES and not isinstance(value, int):
            (ends[number],) = struct.unpack("<d", value)
        else:
            raise WireError("a tensor", f"a message with field {number} of wire type {wire_type}", field)
    if dtype is None:
        raise WireError(f"a dtype of {', '.join(DTYPES)}", "another or none", field)
    if incoming != WHOLE or bits:
        return _packed(field, dtype, bits, ends[5], ends[6], shape, data, incoming)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise WireError(f"{expected} bytes of {dtype_name(dtype)} {shape}", f"{len(data)}", field)
    return torch.from_numpy(np.frombuffer(data, _NUMPY_OF[dtype]).astype(dtype_name(dtype)).reshape(shape))


def _packed(
    field: str,
    dtype: torch.dtype,
    bits: int,
    low: float,
    high: float,
    shape: tuple[int, ...],
    data: memoryview,
    incoming: int,
) -> Packed:
    came = HALF if dtype == torch.float16 and not bits else bits or dtype.itemsize * 8
    fits = (dtype == torch.float16 and not bits) if incoming == HALF else (dtype == torch.float32 and 0 < bits < HALF)
    if came != incoming or not fits:
        raise WireError(f"{incoming} bits an entry", f"{came} bits of {dtype_name(dtype)}", field)
    if len(data) != packed_size(shape, bits=came):
        raise WireError(f"{packed_size(shape, came)} bytes of {came} bits {shape}", f"{len(data)}", field)
    if not (-_LARGEST <= low <= high <= _LARGEST):
        raise WireError("a scale from a finite low to a high no smaller", f"{low:g} to {high:g}", field)
    return Packed(came, low, high, shape, np.frombuffer(data, np.uint8).copy())


def _shape(field: str, packed: memoryview) -> tuple[int, ...]:
    sizes: list[int] = []
    at = 0
    while at < len(packed):
        if len(sizes) == _MAX_DIMS:
            raise WireError(f"at most {_MAX_DIMS} dimensions", "more", field)
        size, at = read_varint(packed, at)
        sizes.append(size)
    # A size of 0 makes any others fit the bytes, but not what NumPy and torch can count.
    if math.prod(max(size, 1) for size in sizes) > _MAX_ELEMENTS:
        raise WireError(f"at most {_MAX_ELEMENTS} elements", f"shape {tuple(sizes)}", field)
    return tuple(sizes)
