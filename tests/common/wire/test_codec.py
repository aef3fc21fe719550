"""Messages and bytes, against the protobuf library in both directions."""

from __future__ import annotations

import contextlib
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation.messages import AGREEMENT, BLINDED, SetProof, SetProofs
from colonnade.common.alignment.messages import ALIGNMENT
from colonnade.common.contracts import prediction
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.messaging.label_messages import LABEL_MESSAGES
from colonnade.common.messaging.message import Message, TensorSpec, message, schema
from colonnade.common.messaging.raw import DTYPES
from colonnade.common.wire._generated import tensor_pb2
from colonnade.common.wire.codec import VARINT, Codec, WireError, nested, tag, varint
from tests.support.federation import config
from tests.support.messages import any_message, any_tensor, dimensions, fitting_message, library

ALL = {**CONTRACTS, "prediction": prediction.contract(config({"name": "split"}).federation)}  # all conversations
BEFORE = {kind.__name__: kind for kind in ALIGNMENT}  # the protocol's own messages
CODECS = {name: Codec({**contract.kinds, **BEFORE}) for name, contract in ALL.items()}
OWNERS = {kind: name for name, contract in ALL.items() for kind in contract.messages} | dict.fromkeys(
    ALIGNMENT, "split"
)
KINDS = [(name, kind) for kind, name in OWNERS.items()]  # a kind that several share once


def form(kind: type[Message]) -> tuple[type, ...]:
    """The types of its fields, as the codec distinguishes them: a tensor is a tensor."""
    return tuple(Tensor if isinstance(spec, TensorSpec) else spec for spec in schema(kind).values())


FORMS = list({form(kind): (protocol, kind) for protocol, kind in reversed(KINDS)}.values())  # the first of each
every_kind, every_form = (
    pytest.mark.parametrize(("protocol", "kind"), chosen, ids=[f"{n}.{k.__name__}" for n, k in chosen])
    for chosen in (KINDS, FORMS)
)

few = settings(max_examples=10)  # of every form

PROTO_TYPES = {
    int: FieldDescriptor.TYPE_UINT32,
    float: FieldDescriptor.TYPE_DOUBLE,
    str: FieldDescriptor.TYPE_STRING,
    bool: FieldDescriptor.TYPE_BOOL,
}


def encoded(protocol: str, message: Message) -> bytes:
    return b"".join(CODECS[protocol].encode(message))


def decoded(protocol: str, kind: type[Message], body: bytes) -> Message:
    return CODECS[protocol].decode(kind.__name__, memoryview(body))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def assert_same(one: Message, other: Message) -> None:
    assert type(one) is type(other)
    for name, spec in schema(type(one)).items():
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(spec, TensorSpec):
            assert (a.dtype, a.shape, bits(a)) == (b.dtype, b.shape, bits(b))
        else:
            assert (type(a), repr(a)) == (type(b), repr(b))  # a NaN too, and the sign of a zero


@every_kind
def test_a_dataclass_and_its_protobuf_message_have_the_same_fields(protocol: str, kind: type[Message]) -> None:
    fields = library(kind).DESCRIPTOR.fields
    assert [field.name for field in fields] == list(schema(kind))
    assert [field.number for field in fields] == list(range(1, len(fields) + 1))
    for field, spec in zip(fields, schema(kind).values(), strict=True):
        if isinstance(spec, TensorSpec):
            assert field.message_type is not None and field.message_type.full_name == "colonnade.Tensor"
        else:
            assert field.type == PROTO_TYPES[spec]
        assert not field.is_repeated


def test_shared_messages_are_complete_and_their_names_reserved() -> None:
    for name, contract in ALL.items():
        assert not set(BEFORE) & set(contract.kinds)
        shared = {kind for kind in BLINDED if kind in contract.messages}
        assert shared in (set(), set(AGREEMENT), {*AGREEMENT, SetProof, SetProofs}, set(BLINDED))
        if name != "codes":  # sends the labels of all rows at once, in messages of its own
            assert contract.exchange.shares_labels == (set(LABEL_MESSAGES) <= set(contract.messages))


@every_form
@few
@given(data=st.data())
def test_the_library_reads_our_bytes_and_we_read_them_and_its_own(
    protocol: str, kind: type[Message], data: st.DataObject
) -> None:
    """To the bit."""
    message = data.draw(any_message(kind))
    body = encoded(protocol, message)
    assert_same(decoded(protocol, kind, body), message)
    assert_same(decoded(protocol, kind, as_proto(message).SerializeToString()), message)
    proto = library(kind).FromString(body)
    for name, spec in schema(kind).items():
        ours, theirs = getattr(message, name), getattr(proto, name)
        if isinstance(spec, TensorSpec):
            assert DTYPES[tensor_pb2.Tensor.Dtype.Name(theirs.dtype).lower()] == ours.dtype
            assert (tuple(theirs.shape), theirs.data) == (tuple(ours.shape), bits(ours))
        else:
            assert repr(theirs) == repr(ours)  # a NaN too, and the sign of a zero
    assert not len(UnknownFieldSet(proto))


def as_proto(message: Message) -> ProtoMessage:
    values: dict[str, Any] = {}
    for name, spec in schema(type(message)).items():
        value = getattr(message, name)
        if isinstance(spec, TensorSpec):
            code = tensor_pb2.Tensor.Dtype.Value(str(value.dtype).removeprefix("torch.").upper())
            value = tensor_pb2.Tensor(dtype=code, shape=value.shape, data=bits(value))
        values[name] = value
    return library(type(message))(**values)


@every_kind
def test_every_kind_is_read_by_the_library_and_by_us(protocol: str, kind: type[Message]) -> None:
    """A message with values as in a run; the tests of every form use any values."""
    message = fitting_message(kind, dimensions(rows=3, width=2, classes=4))
    written = encoded(protocol, message)
    assert library(kind).FromString(written) == as_proto(message)
    assert_same(decoded(protocol, kind, written), message)


class EmbeddingOf:
    """An embedding of the first protocol with one tensor, by our codec."""

    protocol, kind = next((name, kind) for name, kind in KINDS if kind.__name__ == "Embedding")

    @classmethod
    def encode(cls, tensor: Tensor) -> list[bytes | memoryview]:
        return CODECS[cls.protocol].encode(cls.kind(1, tensor))

    @classmethod
    def decode(cls, tensor_bytes: bytes) -> Tensor:
        body = b"".join([tag(1, VARINT), varint(1), *nested(2, [tensor_bytes])])
        return decoded(cls.protocol, cls.kind, body).h


def test_a_contiguous_tensor_is_not_copied_on_the_way_out() -> None:
    tensor = torch.rand(64, 4)
    largest = max(EmbeddingOf.encode(tensor), key=len)
    assert np.shares_memory(np.frombuffer(largest, np.uint8), tensor.numpy())


def test_a_tensor_that_came_in_can_be_changed_and_is_its_own() -> None:
    frame = b"".join(EmbeddingOf.encode(torch.ones(2, 2)))
    one, two = (decoded(EmbeddingOf.protocol, EmbeddingOf.kind, frame).h for _ in range(2))
    one.zero_()
    assert two.sum() == 4


def test_a_tensor_with_a_gradient_history_can_be_sent() -> None:
    h = torch.ones(2, 2, requires_grad=True) * 2
    came = decoded(EmbeddingOf.protocol, EmbeddingOf.kind, b"".join(EmbeddingOf.encode(h))).h
    assert torch.equal(came, h.detach()) and not came.requires_grad


# Scalars of all four types: no protocol has them all.


@message
class Scalars(Message):
    text: str
    share: float
    sure: bool


@pytest.fixture(scope="module")
def scalars() -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    types = [field.TYPE_UINT32, field.TYPE_STRING, field.TYPE_DOUBLE, field.TYPE_BOOL]
    file = descriptor_pb2.FileDescriptorProto(name="scalars.proto", package="test", syntax="proto3")
    proto = file.message_type.add(name="Scalars")
    for number, (name, type_) in enumerate(zip(schema(Scalars), types, strict=True), 1):
        proto.field.add(name=name, number=number, type=type_, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Scalars"))
    return SimpleNamespace(proto=made, codec=Codec({"Scalars": Scalars}))


@given(sent=any_message(Scalars))
@example(sent=Scalars(1, "", -0.0, True))
def test_scalars_are_written_as_the_library_does(scalars: Any, sent: Scalars) -> None:
    theirs = scalars.proto(round=sent.round, text=sent.text, share=sent.share, sure=sent.sure).SerializeToString()
    ours = b"".join(scalars.codec.encode(sent))
    assert ours == theirs
    came = scalars.codec.decode("Scalars", memoryview(ours))
    values = [(type(v), str(v)) for v in (came.round, came.text, came.share, came.sure)]
    assert values == [(type(v), str(v)) for v in (sent.round, sent.text, sent.share, sent.sure)]


def test_a_whole_number_in_a_float_field_arrives_as_a_float(scalars: Any) -> None:
    body = b"".join(scalars.codec.encode(Scalars(1, "", 2, False)))
    came = scalars.codec.decode("Scalars", memoryview(body))
    assert isinstance(came.share, float) and came.share == 2


@pytest.mark.parametrize("round", [-1, 2**32])
def test_an_integer_that_does_not_fit_is_not_sent(scalars: Any, round: int) -> None:
    with pytest.raises(ValueError, match=r"an integer field holds 0 to 2\^32 - 1"):
        scalars.codec.encode(Scalars(round, "", 0.0, False))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (tag(1, VARINT) + varint(2**32), "Scalars.round: expected less than 2^32, got 4294967296"),
        (b"".join(nested(1, [b"x"])), "Scalars.round: expected wire type 0, got 2"),
        (b"".join(nested(2, [b"\xff\xfe"])), "Scalars.text: expected UTF-8, got other bytes"),
        (tag(3, VARINT) + b"\x01", "Scalars.share: expected wire type 1, got 0"),
        ((tag(1, VARINT) + b"\x01") * 2, "Scalars: expected every declared field once, got field 1 twice"),
        (tag(9, VARINT) + b"\x01", "Scalars: expected every declared field once, got field 9 too"),
    ],
    ids=["too large", "text for a number", "not UTF-8", "number for a float", "twice", "unknown"],
)
def test_a_malformed_scalar_is_refused_in_words(scalars: Any, body: bytes, said: str) -> None:
    with pytest.raises(WireError) as refused:
        scalars.codec.decode("Scalars", memoryview(body))
    assert str(refused.value) == said


# Bytes of a hostile sender.


def tensor_bytes(*shape: int, dtype: int = 2, data: bytes = b"") -> bytes:
    packed = b"".join(varint(size) for size in shape)
    return b"".join([tag(1, VARINT), varint(dtype), *nested(2, [packed]), *nested(3, [data])])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (tensor_bytes(2**40, data=b"1234"), "expected at most 4294967296 elements"),
        (tensor_bytes(2**30, data=b"1234"), "expected 4294967296 bytes of float32 (1073741824,), got 4"),
        (tensor_bytes(2**63, 2**63, 2**63), "expected at most 4294967296 elements"),
        (tensor_bytes(2**32, 2**32, data=b""), "expected at most 4294967296 elements"),
        (tensor_bytes(0, 2**62), "expected at most 4294967296 elements"),
        (tensor_bytes(0, 2**40, 2**40), "expected at most 4294967296 elements"),
        (tensor_bytes(*[1] * 9, data=b"1234"), "expected at most 8 dimensions, got more"),
        (tensor_bytes(*[1] * 100_000, data=b"1234"), "expected at most 8 dimensions, got more"),
        (tensor_bytes(1, dtype=7, data=b"1234"), "expected a dtype of float16, float32,"),
        (tensor_bytes(1, dtype=0, data=b"1234"), "expected a dtype of float16, float32,"),
        (b"", "expected a dtype of float16, float32,"),
        (tensor_bytes(2, data=b"1234567"), "expected 8 bytes of float32 (2,), got 7"),
        (tensor_bytes(data=b""), "expected 4 bytes of float32 (), got 0"),
        (tensor_bytes(1, data=b"1234") + tag(1, VARINT) + b"\x02", "every field of a tensor once, got field 1 twice"),
        (tensor_bytes(1, data=b"1234") + tag(12, VARINT) + b"\x02", "expected a tensor, got a message with field 12"),
        (tag(2, VARINT) + b"\x01", "expected a tensor, got a message with field 2 of wire type 0"),
        (tag(1, VARINT) + b"\x02" + b"".join(nested(2, [b"\x80"])), "expected a number, got the end of the frame"),
    ],
    ids=["2^40 elements", "2^30 elements", "product overflows", "2^64 elements", "none of 2^62", "none of 2^80",
         "9 dimensions", "100,000 dimensions", "unknown dtype", "no dtype", "nothing", "too few bytes", "empty scalar",
         "dtype twice", "unknown field", "shape not packed", "shape cut short"],
)  # fmt: skip
def test_a_malformed_tensor_is_refused_in_words_and_takes_no_memory(body: bytes, said: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as refused:
            EmbeddingOf.decode(body)
        assert said in str(refused.value)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_an_undeclared_kind_is_refused_and_shortened() -> None:
    with pytest.raises(WireError, match=r"^E{80}: expected one of Census, .*Embedding, .*, got an undeclared kind$"):
        CODECS["split"].decode("E" * 10_000, memoryview(b""))


def test_without_declared_messages_everything_is_refused() -> None:
    with pytest.raises(WireError, match=r"^Embedding: expected no message at all, got an undeclared kind$"):
        Codec({}).decode("Embedding", memoryview(b""))


def test_a_kind_of_python_itself_is_undeclared() -> None:
    with pytest.raises(WireError, match="an undeclared kind"):
        CODECS["split"].decode("__class__", memoryview(b""))


def test_a_missing_tensor_is_refused() -> None:
    with pytest.raises(WireError, match=r"Embedding.h: expected float32 \(rows, width\), got nothing"):
        CODECS["split"].decode("Embedding", memoryview(tag(1, VARINT) + b"\x01"))


def survives(protocol: str, kind: type[Message], body: bytes) -> None:
    with contextlib.suppress(WireError):
        decoded(protocol, kind, body)


@every_form
@few
@given(noise=st.binary(max_size=120))
def test_any_bytes_are_a_message_or_refused(protocol: str, kind: type[Message], noise: bytes) -> None:
    survives(protocol, kind, noise)


@every_form
@few
@given(data=st.data())
def test_flipped_bytes_are_a_message_or_refused(protocol: str, kind: type[Message], data: st.DataObject) -> None:
    body = bytearray(encoded(protocol, data.draw(any_message(kind))))
    assume(body)  # scalars that are all zero and empty are no bytes
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    survives(protocol, kind, bytes(body))


@given(tensor=any_tensor(), data=st.data())
def test_a_tensor_cut_short_anywhere_is_refused(tensor: Tensor, data: st.DataObject) -> None:
    body = b"".join(EmbeddingOf.encode(tensor))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        decoded(EmbeddingOf.protocol, EmbeddingOf.kind, body[:cut])
