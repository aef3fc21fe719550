"""Readers of what another member sends: frames of every protocol in every form, and the parts that frames are of."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import torch
from torch import Tensor

from colonnade.common.alignment.messages import ALIGNMENT, alignment_limits
from colonnade.common.contracts import prediction
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.conversation.parcels import (
    Begin,
    Close,
    Failure,
    Farewell,
    Hello,
    Open,
    Parcel,
    Preparing,
    Refusal,
    Rewind,
    Save,
    Saved,
    Spent,
    Welcome,
)
from colonnade.common.errors import ContractError
from colonnade.common.messaging import raw
from colonnade.common.messaging.forms import AS_IS, Coded, Form, Largest, Packed, Signs
from colonnade.common.messaging.message import (
    Kinds,
    Message,
    TensorSpec,
    check,
    check_finite,
    memory,
    schema,
    tensor_specs,
)
from colonnade.common.messaging.quantise import pack as compressed
from colonnade.common.messaging.quantise import unpack as decompressed
from colonnade.common.messaging.raw import DTYPES
from colonnade.common.wire.codec import (
    Codec,
    WireError,
    packed_parts,
    read_fields,
    read_tensor,
    read_varint,
    tensor_parts,
    varint,
)
from colonnade.common.wire.frame import FRAME_ALLOWANCE, pack, read_hello, unpack
from tests.fuzz.engine import Broken, Case, Target
from tests.fuzz.mutations.protobuf import mutate_protobuf
from tests.support.federation import config

SESSION = 7

FORMS: Mapping[str, Form] = {
    str(form): form
    for form in (
        AS_IS,
        Coded(16),
        Coded(8),
        Coded(5, nearest=True),
        Coded(4, by_column=True),
        Coded(2, symmetric=True),
        Coded(1),
        Largest(0.3),
        Signs(),
    )
}
_LIMIT = 40
_ROWS, _WIDTH, _CLASSES = 3, 2, 4

NOTICES: Sequence[Parcel] = (
    Hello("ada", "f" * 16, "0.2.0", config={"classes": "ab12", "plugin.x.y": "z 1"}, rows=1000, held=(20, 10), run="r"),
    Welcome(),
    Refusal("no", "ask"),
    Begin(SESSION, ("ada", "bob"), "run1", 12, "a1", 2),
    Open(3),
    Close(),
    Farewell(),
    Failure("bob", "its disk is full", "make room"),
    Save(12, 8, 4),
    Saved(12, ""),
    Rewind("once more"),
    Spent(12.5),
    Preparing(),
)


@cache
def conversations() -> Mapping[str, tuple[Kinds, Mapping[str, int]]]:
    """The kinds of every protocol, with those of alignment, and of prediction; and the limits of all dimensions."""
    found: dict[str, Kinds] = {name: CONTRACTS[name].kinds for name in NAMES}
    found["prediction"] = prediction.contract(config({"name": "split"}).federation).kinds
    before = {kind.__name__: kind for kind in ALIGNMENT}
    return {name: ({**kinds, **before}, _limits({**kinds, **before})) for name, kinds in found.items()}


def _limits(kinds: Kinds) -> dict[str, int]:
    dims = {dim for kind in kinds.values() for _, spec in tensor_specs(kind) for dim in spec.dims}
    return {**dict.fromkeys(dims, _LIMIT), **{dim: n for dim, n in alignment_limits(4).items() if n < 8192}}


@cache
def _codec(variant: str) -> tuple[Codec, Mapping[str, int]]:
    name, _, form = variant.partition("/")
    kinds, limits = conversations()[name]
    return Codec(kinds, FORMS[form], limits), limits


def _variants() -> Iterator[str]:
    """Every protocol as it is, and all forms by turns."""
    forms = itertools.cycle([form for form in FORMS if FORMS[form] != AS_IS])
    for name in conversations():
        yield f"{name}/{AS_IS}"
        yield f"{name}/{next(forms)}"


def sample(kind: type[Message], form: Form = AS_IS, rng: Random | None = None) -> Message:
    """A message of a kind, small, in a form."""
    rng = rng or Random(kind.__name__)
    draws = torch.Generator().manual_seed(1)
    sizes = {"rows": _ROWS, "width": _WIDTH, "classes": _CLASSES}
    scalars: dict[Any, Any] = {int: rng.choice([1, 2, 300]), float: 0.5, str: "test", bool: True}
    values: dict[str, Any] = {}
    packed: dict[str, Packed] = {}
    for name, spec in schema(kind).items():
        if not isinstance(spec, TensorSpec):
            values[name] = scalars[spec]
            continue
        shape = [sizes.get(dim, _WIDTH) for dim in spec.dims]
        values[name] = (torch.rand(shape, generator=draws) * 9 - 4).to(DTYPES[spec.dtype])
        if spec.dtype == "float32" and form != AS_IS:
            packed[name] = compressed(values[name], form, draws)
            values[name] = decompressed(packed[name])
    return kind(**values, packed=packed)


def _frames() -> list[Case]:
    found = []
    for variant in _variants():
        codec, _ = _codec(variant)
        form = FORMS[variant.partition("/")[2]]
        frames = [pack(sample(kind, form), SESSION, codec) for kind in codec.kinds.values()]
        found += [Case(variant, frame) for frame in frames]
        found.append(Case(variant, b"".join(frames[:3])))
    variant = f"split/{AS_IS}"
    notices = [pack(notice, 0, _codec(variant)[0]) for notice in NOTICES]
    return [*found, *(Case(variant, notice) for notice in notices), Case(variant, b"".join(notices))]


def _read_frame() -> Callable[[str, bytes], object]:
    def read(variant: str, data: bytes) -> object:
        codec, limits = _codec(variant)
        came: list[Parcel] = []
        try:
            came.extend(unpack(data, SESSION, codec))
        finally:  # those before a malformed one are delivered
            for parcel in came:
                _examine(parcel, codec, limits)
        return came

    return read


def _examine(parcel: Parcel, codec: Codec, limits: Mapping[str, int]) -> None:
    """A parcel is small, and is the same after another way over the wire; a receiver's checks accept or refuse it."""
    if isinstance(parcel, Message):
        if memory(parcel) > 1 << 20 and parcel.packed:
            raise Broken(f"a message of {memory(parcel)} bytes")
        try:
            check("ada", parcel, limits)
            check_finite("ada", parcel)
        except ContractError:
            pass
    elif isinstance(parcel, Begin) and parcel.session != SESSION:
        return  # a frame of that session
    again = list(unpack(pack(parcel, 0, codec), SESSION, codec))
    if len(again) != 1 or not same(parcel, again[0]):
        raise Broken(f"{parcel} comes back as {again}")


def same(one: object, other: object) -> bool:
    """True if two parcels are equal to the bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Message):
        return all(same(getattr(one, name), getattr(other, name)) for name in schema(type(one)))
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and raw.to_bytes(one) == raw.to_bytes(other)
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return one == other or (one != one and other != other)


def _read_hello() -> Callable[[str, bytes], object]:
    codec = Codec({})

    def read(_variant: str, data: bytes) -> object:
        hello = read_hello(data)
        again = read_hello(pack(hello, 0, codec)) if len(data) < FRAME_ALLOWANCE // 2 else hello
        if hello != again:
            raise Broken(f"{hello} comes back as {again}")
        return hello

    return read


def _hellos() -> list[Case]:
    full = pack(NOTICES[0], 0, Codec({}))
    return [Case("", full), Case("", pack(Hello("a", "b", "c"), 0, Codec({}))), Case("", pack(Welcome(), 0, Codec({})))]


def _read_tensor() -> Callable[[str, bytes], object]:
    def read(variant: str, data: bytes) -> object:
        form = FORMS[variant]
        came = read_tensor("Embedding.h", memoryview(data), form)
        if isinstance(came, Packed):
            if len(came.shape) > 2 or max(came.shape, default=0) > 256:
                return None  # the codec refuses it before it is unpacked
            again = read_tensor("again", memoryview(b"".join(packed_parts(came))), form)
            if not (isinstance(again, Packed) and same(decompressed(came), decompressed(again))):
                raise Broken("another tensor after another way over the wire")
        elif not same(came, read_tensor("again", memoryview(b"".join(tensor_parts(came))), form)):
            raise Broken("another tensor after another way over the wire")
        return came

    return read


_TENSOR_SHAPES = ((), (1,), (5,), (3, 4), (2, 0), (17, 3), (2, 2, 2), (300,))


def _tensors() -> list[Case]:
    draws = torch.Generator().manual_seed(2)
    found = []
    for word, form in FORMS.items():
        for shape in _TENSOR_SHAPES:
            values = torch.rand(shape, generator=draws) * 2 - 1
            if form == AS_IS:
                found += [Case(word, b"".join(tensor_parts((values * 9).to(dtype)))) for dtype in DTYPES.values()]
            else:
                found.append(Case(word, b"".join(packed_parts(compressed(values, form, draws)))))
    return found


def _read_parts() -> Callable[[str, bytes], object]:
    def read(variant: str, data: bytes) -> object:
        view = memoryview(data)
        if variant == "varint":
            number, at = read_varint(view, 0)
            if not (0 <= number < 1 << 64 and 0 < at <= 10 and read_varint(memoryview(varint(number)), 0)[0] == number):
                raise Broken(f"{number} in {at} bytes")
            return number
        fields = read_fields(view)
        if len(fields) > 64 or any(isinstance(value, int) and value >= 1 << 64 for _, _, value in fields):
            raise Broken("more than 64 fields, or a number of more than 64 bits")
        return fields

    return read


def _parts() -> list[Case]:
    numbers = [Case("varint", varint(number)) for number in (0, 1, 127, 128, 1 << 32, (1 << 64) - 1)]
    return [*numbers, *(Case("fields", case.data) for case in _frames()[::7])]


def _read_lengths() -> Callable[[str, bytes], object]:
    def read(_variant: str, data: bytes) -> object:
        cut = len(data) // 8 * 8 // 16 * 8
        lengths = (
            torch.frombuffer(bytearray(data[:cut]), dtype=torch.int64) if cut else torch.empty(0, dtype=torch.int64)
        )
        flat = raw.to_tensor(data[cut:])
        pieces = raw.take_apart(flat, lengths)
        if b"".join(map(raw.to_bytes, pieces)) != raw.to_bytes(flat) or len(pieces) != len(lengths):
            raise Broken("pieces that are not the whole")
        return pieces

    return read


def _lengths() -> list[Case]:
    found = []
    for sizes in ((), (8,), (8, 0, 16), (3, 5, 8, 16)):
        head = b"".join(size.to_bytes(8, "little") for size in sizes)
        found.append(Case("", head + bytes(sum(sizes))))
    return found


TARGETS = (
    Target("frames", _read_frame, _frames, (WireError,), mutate_protobuf, 12_000),
    Target("hello", _read_hello, _hellos, (WireError,), mutate_protobuf, 4000),
    Target("tensors", _read_tensor, _tensors, (WireError,), mutate_protobuf, 6000),
    Target("fields", _read_parts, _parts, (WireError,), mutate_protobuf, 3000),
    Target("lengths", _read_lengths, _lengths, (ValueError,), count=1000),
)
