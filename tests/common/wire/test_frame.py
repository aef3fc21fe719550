"""Frames: against the protobuf library, and as altered by a hostile end."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.parcels import (
    Begin,
    Close,
    Failure,
    Farewell,
    Hello,
    Open,
    Parcel,
    Preparing,
    Save,
    Saved,
)
from colonnade.common.messaging.message import Message, largest_bytes, payload_bytes
from colonnade.common.protocols.split import CONTRACT, Embedding
from colonnade.common.wire._generated import federation_pb2
from colonnade.common.wire.codec import EIGHT_BYTES, LENGTH, VARINT, Codec, WireError, nested, tag, varint
from colonnade.common.wire.frame import FRAME_ALLOWANCE, METHOD, pack, unpack
from tests.support.messages import UINT32, any_message, any_notice, dimensions, fitting_message, library

CODEC = Codec(CONTRACT.kinds)
KINDS = [(name, kind) for kind, name in {kind: name for name in CONTRACTS for kind in CONTRACTS[name].messages}.items()]
every_kind = pytest.mark.parametrize(("protocol", "kind"), KINDS, ids=[f"{n}.{k.__name__}" for n, k in KINDS])

any_plain = st.one_of(any_notice, st.builds(Open, UINT32), st.just(Close()), st.builds(Save, UINT32, UINT32, UINT32))
any_parcel = st.one_of(any_plain, *(any_message(kind) for kind in CONTRACT.messages))
few, fewer = settings(max_examples=25), settings(max_examples=6)


def read(frame: bytes, session: int = 0) -> list[Parcel]:
    return list(unpack(frame, session, CODEC))


def alike(one: Parcel, other: Parcel) -> bool:
    """Notices compare by value; of messages, which compare by identity, their bytes do."""
    if not isinstance(one, Message):
        return one == other
    return type(one) is type(other) and b"".join(CODEC.encode(one)) == b"".join(CODEC.encode(other))


@given(any_parcel, UINT32)
def test_a_frame_is_read_back(parcel: Parcel, session: int) -> None:
    (came,) = read(pack(parcel, session, CODEC), session)
    assert alike(came, parcel)


@given(any_plain, UINT32)
def test_the_library_reads_our_frames(notice: Parcel, session: int) -> None:
    frame = federation_pb2.Frame.FromString(pack(notice, session, CODEC))
    assert frame.session == session
    (parcel,) = frame.parcels
    assert parcel.WhichOneof("body") == type(notice).__name__.lower()
    assert read(frame.SerializeToString(), session) == [notice]


@few
@given(st.one_of(*(any_message(kind) for kind in CONTRACT.messages)), UINT32)
def test_the_library_reads_our_letters_and_we_read_its(message: Message, session: int) -> None:
    frame = federation_pb2.Frame.FromString(pack(message, session, CODEC))
    letter = frame.parcels[0].letter
    assert letter.kind == type(message).__name__
    library(type(message)).FromString(letter.body)
    (came,) = read(frame.SerializeToString(), session)
    assert alike(came, message)


def test_the_method_is_the_one_in_the_proto_file() -> None:
    (service,) = federation_pb2.DESCRIPTOR.services_by_name.values()
    (method,) = service.methods
    assert f"/{service.full_name}/{method.name}" == METHOD
    assert method.client_streaming and method.server_streaming


@few
@given(st.lists(any_parcel.filter(lambda parcel: not isinstance(parcel, Begin)), max_size=4))
def test_frames_end_to_end_are_one_frame(parcels: list[Parcel]) -> None:
    came = read(b"".join(pack(parcel, 9, CODEC) for parcel in parcels), 9)
    assert len(came) == len(parcels) and all(map(alike, came, parcels))


def test_parcels_of_another_session_are_passed_over() -> None:
    frame = b"".join(pack(Open(round), session, CODEC) for round, session in enumerate([7, 8, 7, 9], 1))
    assert read(frame, 7) == [Open(1), Open(3)]


@pytest.mark.parametrize(
    ("parcel", "name"),
    [(Open(1), "Open"), (Begin(8), "Begin"), (Embedding(1, torch.zeros(2, 2)), "Letter"), (Saved(1), "Saved")],
    ids=["a notice", "a beginning", "a message", "a receipt"],
)
def test_within_a_session_a_parcel_of_none_is_refused(parcel: Parcel, name: str) -> None:
    with pytest.raises(WireError, match=f"expected parcels of session 7, got {name} of none"):
        read(pack(parcel, 0, CODEC), 7)
    with pytest.raises(WireError, match=f"expected parcels of session 7, got {name} of none"):
        read(pack(Begin(7), 0, CODEC) + pack(parcel, 0, CODEC))


def test_what_a_party_says_before_it_has_read_begin_is_heard() -> None:
    failure = Failure("", "it cannot go on with its own data", "")
    for parcel in (failure, Preparing()):
        assert read(pack(parcel, 0, CODEC), 7) == [parcel]


def test_before_a_begin_only_parcels_of_no_session_are_read() -> None:
    assert read(pack(Open(1), 7, CODEC) + pack(Hello("ada", "f", "1"), 0, CODEC)) == [Hello("ada", "f", "1")]


def test_messages_after_a_begin_in_its_frame_belong_to_its_session() -> None:
    together = pack(Begin(7), 0, CODEC) + pack(Save(3, 1), 7, CODEC) + pack(Open(1), 8, CODEC)
    assert read(together) == [Begin(7), Save(3, 1)]


@every_kind
@fewer
@given(rows=st.integers(0, 3000), width=st.integers(1, 200), classes=st.integers(1, 40))
@example(rows=0, width=1, classes=1)
@example(rows=3000, width=1, classes=40)
def test_a_frame_costs_at_most_half_a_percent_and_300_bytes(
    protocol: str, kind: type[Message], rows: int, width: int, classes: int
) -> None:
    message = fitting_message(kind, dimensions(rows, width, classes))
    frame = pack(message, 2**31, Codec(CONTRACTS[protocol].kinds))
    assert len(frame) <= payload_bytes(message) * 1.005 + 300


@every_kind
@given(rows=st.integers(0, 300), width=st.integers(1, 200), classes=st.integers(1, 40))
@example(rows=0, width=1, classes=1)
@example(rows=300, width=200, classes=40)
@fewer
def test_a_receivers_limit_leaves_room_for_the_largest_message(
    protocol: str, kind: type[Message], rows: int, width: int, classes: int
) -> None:
    sizes = dimensions(rows, width, classes)
    frame = pack(fitting_message(kind, sizes), 2**31, Codec(CONTRACTS[protocol].kinds))
    assert len(frame) <= largest_bytes(kind, sizes) < largest_bytes(kind, sizes) + FRAME_ALLOWANCE


# Bytes of a hostile end.


def wrapped(*body: bytes) -> bytes:
    """A frame of no session with one parcel."""
    return b"".join(nested(2, list(body)))


def letter(*parts: bytes) -> bytes:
    return wrapped(*nested(7, list(parts)))


def text(number: int, value: bytes) -> bytes:
    return b"".join(nested(number, [value]))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (text(3, b""), "a frame: expected fields 1 and 2, got field 3"),
        (text(1, b"7"), "a frame: expected fields 1 and 2, got field 1"),
        (tag(2, VARINT) + b"\x01", "a frame: expected fields 1 and 2, got field 2"),
        (tag(2, EIGHT_BYTES) + b"8 bytes.", "a frame: expected fields 1 and 2, got field 2"),
        (wrapped(), "a frame: expected one message in a parcel, got 0 fields"),
        (wrapped(text(5, b""), text(6, b"")), "a frame: expected one message in a parcel, got 2 fields"),
        (wrapped(tag(5, VARINT) + b"\x01"), "a frame: expected one message in a parcel, got 1 fields"),
        (wrapped(tag(7, EIGHT_BYTES) + b"8 bytes."), "a frame: expected one message in a parcel, got 1 fields"),
        (wrapped(text(17, b"")), "a frame: expected a known parcel, got field 17"),
        (wrapped(text(5, b"\xff")), "a frame: expected a Open, got what protobuf cannot read"),
        (wrapped(text(1, text(1, b"\xff\xfe"))), "a frame: expected a Hello, got what protobuf cannot read"),
        (letter(text(1, b"Embedding"), text(1, b"Embedding")), "a frame: expected one kind and one body in a letter"),
        (letter(text(2, b"x"), text(2, b"x")), "a frame: expected one kind and one body in a letter"),
        (letter(tag(1, VARINT) + b"\x01"), "a frame: expected one kind and one body in a letter"),
        (letter(text(3, b"")), "a frame: expected one kind and one body in a letter, got field 3"),
        (letter(text(2, b"")), "a letter: expected one of Embedding, Evaluation, Gradient, got an undeclared kind"),
        (letter(text(1, b"\xff\xfe")), ": expected one of Embedding, Evaluation, Gradient, got an undeclared kind"),
        (letter(text(1, b"Embedding")), "Embedding.h: expected float32 (rows, width), got nothing"),
        (tag(2, LENGTH) + varint(2**62) + b"few", f"a frame: expected {2**62} bytes more, got 3"),
        (b"\xff" * 11, "a frame: expected a number of at most 64 bits, got a longer one"),
    ],
)
def test_a_malformed_frame_is_refused_in_words(frame: bytes, said: str) -> None:
    with pytest.raises(WireError) as refused:
        read(frame)
    assert said in str(refused.value)


@every_kind
def test_a_frame_cut_short_anywhere_in_its_parcel_is_refused(protocol: str, kind: type[Message]) -> None:
    codec = Codec(CONTRACTS[protocol].kinds)
    frame = pack(fitting_message(kind, dimensions(2, 3, 2)), 5, codec)
    begin = len(tag(1, VARINT) + varint(5))
    for cut in range(begin + 1, len(frame)):
        with pytest.raises(WireError):
            list(unpack(frame[:cut], 5, codec))


def survives(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        read(frame, 5)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_frame_or_refused(noise: bytes) -> None:
    survives(noise)
    survives(wrapped(noise))
    survives(letter(noise))


@given(st.integers(1, 9), st.binary(max_size=60))
def test_any_bytes_in_a_parcel_are_a_notice_or_refused(number: int, noise: bytes) -> None:
    survives(wrapped(text(number, noise)))


@given(any_parcel, st.data())
def test_flipped_bytes_are_a_frame_or_refused(parcel: Parcel, data: st.DataObject) -> None:
    frame = bytearray(pack(parcel, 5, CODEC))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(frame))


def test_a_tensor_frame_is_encoded_before_pack_returns() -> None:
    h = torch.ones(2, 2)
    frame = pack(Embedding(1, h), 0, CODEC)
    h.zero_()
    (came,) = read(frame)
    assert isinstance(came, Embedding) and came.h.sum() == 4


def test_a_farewell_costs_a_few_bytes() -> None:
    assert len(pack(Farewell(), 2**31, CODEC)) < 16
