"""Encoding of a contract's messages in protobuf: a field's number is its position in the dataclass, from 1.

proto/ contains the generated schema, for implementations in other languages.

Tensors (proto/tensor.proto) are checked when they are received. Their bytes are little-endian, and copied once on the
way out (into the frame) and once on the way in (out of it). The protobuf library copies every bytes field twice in each
direction, once more for every message that it is nested in, and tensors are nearly all of the traffic. So this module
writes and reads the wire format itself, field by field: the bytes are plain protobuf, and tests compare them with the
library in both directions. A field is a tag (number and wire type) followed by a varint, eight bytes, or a length and
that many bytes: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from colonnade.common.errors import ContractError
from colonnade.common.messaging.forms import AS_IS, HALF, Coded, Form, Largest, Packed, Shape, Signs
from colonnade.common.messaging.message import Kinds, Message, TensorSpec, dtype_name, one_of, schema
from colonnade.common.messaging.quantise import unpack
from colonnade.common.messaging.raw import DTYPES
from colonnade.common.wire._generated import tensor_pb2

Buffer = bytes | memoryview

VARINT, EIGHT_BYTES, LENGTH = 0, 1, 2
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 64  # of a message: more than any contract's


class WireError(Exception):
    """Malformed bytes; callers that know the sender convert it to a `ContractError`.

    Args:
        expected, got: as in `ContractError`.
        where: KIND or KIND.FIELD; a frame as a whole if left out.
    """

    def __init__(self, expected: str, got: str, where: str = "a frame") -> None:
        super().__init__(f"{where}: expected {expected}, got {got}")
        self.expected, self.got, self.where = expected, got, where

    def of(self, party: str) -> ContractError:
        """The same, with the sender's name."""
        kind, _, field = self.where.partition(".")
        return ContractError(party, kind, field, self.expected, self.got)


@functools.lru_cache(4096)  # sizes and tags recur from message to message
def varint(value: int) -> bytes:
    """A non-negative integer in groups of seven bits, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.lru_cache(256)
def tag(number: int, wire_type: int) -> bytes:
    """A field's tag."""
    return varint(number << 3 | wire_type)


def nested(number: int, body: list[Buffer]) -> list[Buffer]:
    """A length-delimited field (message, string or bytes) with content `body`, not joined yet."""
    return [tag(number, LENGTH) + varint(sum(len(part) for part in body)), *body]


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The integer at a position, and the position after it."""
    value = shift = 0
    for byte in view[at : at + _MAX_VARINT_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return value, at
        shift += 7
    if shift < 7 * _MAX_VARINT_BYTES:
        raise WireError("a number", "the end of the frame")
    raise WireError("a number of at most 64 bits", "a longer one")


def read_fields(view: memoryview, most: int = _MAX_FIELDS) -> list[tuple[int, int, int | memoryview]]:
    """Every field of a message as (number, wire type, value): an int for varints, else a slice.

    Args:
        most: maximum fields, so that a megabyte of two-byte fields is refused after the first few.
    """
    fields: list[tuple[int, int, int | memoryview]] = []
    at, end = 0, len(view)
    while at < end:
        if len(fields) == most:
            raise WireError(f"at most {most} fields", "more")
        key = view[at]
        if key < 0x80:  # most numbers have one byte
            at += 1
        else:
            key, at = read_varint(view, at)
        number, wire_type = key >> 3, key & 7
        size = 8
        if wire_type in (VARINT, LENGTH):
            size, at = read_varint(view, at)
            if wire_type == VARINT:
                fields.append((number, wire_type, size))
                continue
        elif wire_type != EIGHT_BYTES:
            raise WireError("wire type 0, 1 or 2", f"{wire_type}")
        if at + size > end:
            raise WireError(f"{size} bytes more", f"{end - at}")
        fields.append((number, wire_type, view[at : at + size]))
        at += size
    return fields


_CODE_OF = {dtype: tensor_pb2.Tensor.Dtype.Value(name.upper()) for name, dtype in DTYPES.items()}
_DTYPE_OF = {code: dtype for dtype, code in _CODE_OF.items()}
_NUMPY_OF = {dtype: np.dtype(name).newbyteorder("<") for name, dtype in DTYPES.items()}
_MAX_DIMS, _MAX_ELEMENTS = 8, 1 << 32
_ENTRIES, _COLUMNS = tensor_pb2.Tensor.ENTRIES, tensor_pb2.Tensor.COLUMNS
_LARGEST, _SIGNS = tensor_pb2.Tensor.LARGEST, tensor_pb2.Tensor.SIGNS
_SYMMETRIC = tensor_pb2.Tensor.SYMMETRIC
_SCALES: Mapping[int, str] = {_ENTRIES: "", _COLUMNS: " by column", _SYMMETRIC: " symmetric"}

# Numbers of each form, in the order of `Packed.numbers`; other forms have none.
_NUMBERS: Mapping[int, tuple[str, ...]] = {_ENTRIES: ("low", "high"), _SYMMETRIC: ("high",), _SIGNS: ("mean",)}

# The fields of a tensor by number: name and wire type.
_FIELDS: Mapping[int, tuple[str, int]] = {
    1: ("dtype", VARINT),
    2: ("shape", LENGTH),
    3: ("data", LENGTH),
    4: ("bits", VARINT),
    5: ("low", EIGHT_BYTES),
    6: ("high", EIGHT_BYTES),
    7: ("form", VARINT),
    8: ("lows", LENGTH),
    9: ("highs", LENGTH),
    10: ("places", LENGTH),
    11: ("mean", EIGHT_BYTES),
}
_NUMBER_OF = {name: number for number, (name, _) in _FIELDS.items()}
_LARGEST_NUMBER = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class _Read:
    """A tensor's fields as received; missing ones are 0 or empty, as in protobuf."""

    dtype: torch.dtype
    shape: Shape = ()
    data: Buffer = b""
    bits: int = 0
    low: float = 0.0
    high: float = 0.0
    form: int = _ENTRIES
    lows: Buffer = b""
    highs: Buffer = b""
    places: Buffer = b""
    mean: float = 0.0

    def __str__(self) -> str:
        dtype = dtype_name(self.dtype)
        if self.form in _SCALES:
            return f"{self.bits} bits of {dtype}{_SCALES[self.form]}" if self.bits else dtype
        names: dict[int, str] = {_LARGEST: "the largest", _SIGNS: "signs"}
        what = names.get(self.form, f"form {self.form}")
        return f"{what} of {dtype}{f' with bits = {self.bits}' if self.bits else ''}"


def tensor_parts(tensor: Tensor) -> list[Buffer]:
    """An uncompressed tensor, in pieces that share its memory."""
    array = tensor.detach().cpu().contiguous().numpy().astype(_NUMPY_OF[tensor.dtype], copy=False)
    return [_head(tensor.dtype, tuple(tensor.shape)), *_bytes("data", array)]


def packed_parts(packed: Packed) -> list[Buffer]:
    """A compressed tensor, in pieces that share its memory."""
    dtype, bits, form = _declared(packed.form, packed.shape)
    numbers = [_number("bits", bits), _number("form", form)]
    parts: list[Buffer] = [_head(dtype, packed.shape), *_bytes("data", packed.data), *numbers]
    if form == _COLUMNS:
        parts += [*_bytes("lows", packed.numbers[0]), *_bytes("highs", packed.numbers[1])]
    elif form == _LARGEST:
        parts += _bytes("places", packed.places)
    else:
        names = _NUMBERS[form] if packed.numbers.size else ()  # halves have none
        parts += [_double(name, float(number)) for name, number in zip(names, packed.numbers.flat, strict=True)]
    return parts


def read_tensor(field: str, body: memoryview, form: Form) -> Tensor | Packed:
    """Reads a tensor; a compressed one stays in its wire form. Allocates no more than the bytes themselves.

    Args:
        field: KIND.FIELD, for errors.

    Raises WireError if the bytes are not a tensor, or not exactly of this form.
    """
    came = _read(field, body)
    wanted = (came.dtype, 0, _ENTRIES) if form == AS_IS else _declared(form, came.shape)
    if (came.dtype, came.bits, came.form) != wanted:
        got = str(came) if came.bits or came.form else f"{came.dtype.itemsize * 8} bits of {came}"
        raise WireError(_words(form, came.shape), got, field)
    _check_sizes(field, came, form)
    if form == AS_IS:
        entries = np.frombuffer(came.data, _NUMPY_OF[came.dtype])
        return torch.from_numpy(entries.astype(dtype_name(came.dtype)).reshape(came.shape))
    data, places = np.frombuffer(came.data, np.uint8).copy(), np.empty(0, np.uint8)
    if isinstance(form, Largest):
        places = np.frombuffer(came.places, form.places(came.shape)).copy()
        _check_largest(field, places, data.view("<f4"), math.prod(came.shape))
    return Packed(form, came.shape, data, _numbers(field, came, form), places)


def _declared(form: Form, shape: Shape) -> tuple[torch.dtype, int, int]:
    """dtype, bits and form of a compressed tensor."""
    match form:
        case Coded(bits=bits) if bits == HALF:
            return torch.float16, 0, _ENTRIES
        case Coded():
            by_column = form.by_column and len(shape) > 1
            return torch.float32, form.bits, _SYMMETRIC if form.symmetric else _COLUMNS if by_column else _ENTRIES
        case Largest():
            return torch.float32, 0, _LARGEST
        case Signs():
            return torch.float32, 1, _SIGNS


def _words(form: Form, shape: Shape) -> str:
    match form:
        case Coded():
            return f"{form.bits} bits an entry{_SCALES[_declared(form, shape)[2]]}"
        case Largest():
            return f"the largest {form.share:g} of the entries"
        case Signs():
            return "the entries' signs"


def _head(dtype: torch.dtype, shape: Shape) -> bytes:
    sizes = b"".join(varint(size) for size in shape)
    return tag(1, VARINT) + varint(_CODE_OF[dtype]) + tag(2, LENGTH) + varint(len(sizes)) + sizes


def _number(name: str, value: int) -> bytes:
    return tag(_NUMBER_OF[name], VARINT) + varint(value) if value else b""


def _double(name: str, value: float) -> bytes:
    eight = struct.pack("<d", value)  # minus zero is sent explicitly, so that both ends decode the same bits
    return tag(_NUMBER_OF[name], EIGHT_BYTES) + eight if any(eight) else b""


def _bytes(name: str, array: np.ndarray) -> list[Buffer]:
    return nested(_NUMBER_OF[name], [array.reshape(-1).view(np.uint8).data if array.size else b""])


def _read(field: str, body: memoryview) -> _Read:
    values: dict[str, Any] = {}
    for number, wire_type, value in read_fields(body):
        name, expected = _FIELDS.get(number, ("", -1))
        if name in values:
            raise WireError("every field of a tensor once", f"field {number} twice", field)
        if wire_type != expected:
            raise WireError("a tensor", f"a message with field {number} of wire type {wire_type}", field)
        if isinstance(value, int):
            values[name] = value
        else:
            values[name] = struct.unpack("<d", value)[0] if wire_type == EIGHT_BYTES else value
    dtype = _DTYPE_OF.get(values.pop("dtype", 0))
    if dtype is None:
        raise WireError(f"a dtype of {', '.join(DTYPES)}", "another or none", field)
    shape = _shape(field, values.pop("shape", memoryview(b"")))
    return _Read(dtype, shape, **values)


def _shape(field: str, packed: memoryview) -> Shape:
    sizes: list[int] = []
    at = 0
    while at < len(packed):
        if len(sizes) == _MAX_DIMS:
            raise WireError(f"at most {_MAX_DIMS} dimensions", "more", field)
        size, at = read_varint(packed, at)
        sizes.append(size)
    # With a size of 0 any other sizes fit the bytes, but may exceed what NumPy and torch can count.
    if math.prod(max(size, 1) for size in sizes) > _MAX_ELEMENTS:
        raise WireError(f"at most {_MAX_ELEMENTS} elements", f"shape {tuple(sizes)}", field)
    return tuple(sizes)


def _check_sizes(field: str, came: _Read, form: Form) -> None:
    """Checks that the number of bytes is exactly that of form and shape, and that no numbers of other forms are set."""
    entries = math.prod(came.shape)
    sizes = {"data": -(-entries * (came.bits or 8 * came.dtype.itemsize) // 8)}
    if came.form == _COLUMNS:
        sizes["lows"] = sizes["highs"] = 4 * came.shape[-1]
    if isinstance(form, Largest):
        count = form.count(came.shape)
        sizes |= {"data": 4 * count, "places": form.place_bytes(came.shape) * count}
    for name in ("data", "lows", "highs", "places"):
        size, got = sizes.get(name, 0), len(getattr(came, name))
        if got != size:
            what = f"{came} {came.shape}" if name == "data" else name
            raise WireError(f"{size} bytes of {what}", f"{got}", field)
    belong = _NUMBERS.get(came.form, ()) if came.bits else ()
    for name in ("low", "high", "mean"):
        if name not in belong and getattr(came, name):
            raise WireError(f"no {name} with {came}", f"{getattr(came, name):g}", field)


def _numbers(field: str, came: _Read, form: Form) -> np.ndarray:
    """The numbers of `Packed`, after validation."""
    if isinstance(form, Signs):
        if not 0 <= came.mean <= _LARGEST_NUMBER:
            raise WireError("a mean of 0 or more that is finite", f"{came.mean:g}", field)
        return np.array([came.mean], np.float32)
    if came.form == _COLUMNS:
        ends = np.stack([np.frombuffer(part, "<f4") for part in (came.lows, came.highs)])
    elif came.form == _SYMMETRIC:
        ends = np.array([[-came.high], [came.high]])
    elif came.bits:
        ends = np.array([[came.low], [came.high]])
    else:
        return np.empty(0, np.float32)
    ordered = (ends[0] >= -_LARGEST_NUMBER) & (ends[0] <= ends[1]) & (ends[1] <= _LARGEST_NUMBER)
    if not ordered.all():
        low, high = ends[:, int(ordered.argmin())]
        where = f" in column {int(ordered.argmin())}" if came.form == _COLUMNS else ""
        raise WireError("a scale from a finite low to a high no smaller", f"{low:g} to {high:g}{where}", field)
    return ends.astype(np.float32)[int(came.form == _SYMMETRIC) :]


def _check_largest(field: str, places: np.ndarray, values: np.ndarray, entries: int) -> None:
    if not (places[1:] > places[:-1]).all():
        raise WireError("places that ascend", "one that is no larger than the one before", field)
    if len(places) and int(places[-1]) >= entries:
        raise WireError(f"places below {entries}", f"{places[-1]}", field)
    if not np.isfinite(values).all():
        raise WireError("finite values", f"{int((~np.isfinite(values)).sum())} of {len(values)} not finite", field)


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
