"""Frames of a stream, one gRPC message each (proto/federation.proto)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

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
    Relayed,
    Rewind,
    Save,
    Saved,
    Spent,
    Statement,
    Welcome,
)
from colonnade.common.conversation.session import UNNUMBERED
from colonnade.common.messaging.message import Message
from colonnade.common.text import escaped
from colonnade.common.wire._generated import federation_pb2
from colonnade.common.wire.codec import LENGTH, VARINT, Codec, WireError, nested, read_fields, tag, varint

_PLAIN: dict[type, type[ProtoMessage]] = {
    Hello: federation_pb2.Hello,
    Welcome: federation_pb2.Welcome,
    Refusal: federation_pb2.Refusal,
    Begin: federation_pb2.Begin,
    Open: federation_pb2.Open,
    Close: federation_pb2.Close,
    Farewell: federation_pb2.Farewell,
    Failure: federation_pb2.Failure,
    Save: federation_pb2.Save,
    Saved: federation_pb2.Saved,
    Spent: federation_pb2.Spent,
    Preparing: federation_pb2.Preparing,
    Rewind: federation_pb2.Rewind,
    Statement: federation_pb2.Statement,
    Relayed: federation_pb2.Relayed,
}
BODY = {field.name.capitalize(): field.number for field in federation_pb2.Parcel.DESCRIPTOR.fields}
NAME_AT = {number: name for name, number in BODY.items()}
_KIND_AT = {BODY[kind.__name__]: kind for kind in _PLAIN}
SESSION, PARCELS = 1, 2
_LETTER_KIND, _LETTER_BODY = 1, 2
_LONGEST_KIND = 80  # maximum bytes of a kind's name

METHOD = "/colonnade.Federation/Converse"

# Overhead of a frame besides its messages, and the minimum size that a receiver must accept; no notice is larger.
FRAME_ALLOWANCE = 65536

# Maximum parcels of a frame: two-byte parcels cost a receiver more than their size suggests.
MOST_PARCELS = 256

# True if a message of this kind and round is wanted; called before its tensors are decoded.
Expects = Callable[[str, int], bool]


def pack(parcel: Parcel, session: int, codec: Codec) -> bytes:
    """A frame that holds one parcel. Concatenated frames are a frame that holds all of their parcels."""
    if isinstance(parcel, Message):
        letter = nested(_LETTER_KIND, [type(parcel).__name__.encode()])
        letter += nested(_LETTER_BODY, codec.encode(parcel))
        body = nested(BODY["Letter"], letter)
    else:
        plain = _PLAIN[type(parcel)](**vars(parcel)).SerializeToString()
        body = nested(BODY[type(parcel).__name__], [plain])
    return b"".join([tag(SESSION, VARINT), varint(session), *nested(PARCELS, body)])


def read_hello(frame: bytes) -> Hello:
    """Reads a connection's first frame, which must hold a Hello and nothing else."""
    if len(frame) > FRAME_ALLOWANCE:
        raise WireError(f"a Hello of at most {FRAME_ALLOWANCE} bytes", f"{len(frame)} bytes")
    fields = read_fields(memoryview(frame), 2)
    parcels = [value for number, _, value in fields if number == PARCELS and not isinstance(value, int)]
    found = read_fields(parcels[0], 1) if len(parcels) == 1 else []
    number, _, body = found[0] if found else (0, 0, 0)
    if number != BODY["Hello"] or isinstance(body, int):
        got = NAME_AT.get(number, f"{len(parcels)} parcels")
        raise WireError("a Hello first, and nothing else", got)
    hello = _notice(Hello, body)
    assert isinstance(hello, Hello)  # the requested kind
    return hello


def unpack(frame: bytes, session: int, codec: Codec, expects: Expects = lambda _kind, _round: True) -> Iterator[Parcel]:
    """The parcels of a frame. Parcels of another session are skipped.

    Within a session, only the Failure of a party that has not read its Begin yet has the number 0. Parcels after a
    Begin belong to its session, also in the same frame. Parcels are decoded lazily, and unexpected messages not at all.
    Raises WireError if the bytes are not a frame, or hold a parcel that does not belong in a session.
    """
    current = 0
    for number, wire_type, value in read_fields(memoryview(frame), 2 * MOST_PARCELS):
        if number == SESSION and isinstance(value, int):
            current = value
        elif number == PARCELS and wire_type == LENGTH and not isinstance(value, int):
            if not current and session:
                _refuse_unnumbered(value, session)
            if current in (0, session):
                parcel = _parcel(value, codec, expects)
                session = parcel.session if isinstance(parcel, Begin) else session
                if parcel is not None:
                    yield parcel
        else:
            raise WireError("fields 1 and 2", f"field {number}")


def _refuse_unnumbered(view: memoryview, session: int) -> None:
    number = next((number for number, _, _ in read_fields(view)), 0)
    if NAME_AT.get(number) not in UNNUMBERED:
        raise WireError(f"parcels of session {session}", f"{NAME_AT.get(number, 'one')} of none")


def _parcel(view: memoryview, codec: Codec, expects: Expects) -> Parcel | None:
    found = read_fields(view)
    number, wire_type, body = found[0] if len(found) == 1 else (0, 0, 0)
    if wire_type != LENGTH or isinstance(body, int):
        raise WireError("one message in a parcel", f"{len(found)} fields, the first of wire type {wire_type}")
    if number == BODY["Letter"]:
        return _letter(body, codec, expects)
    if number not in _KIND_AT:
        raise WireError("a known parcel", f"field {number}")
    return _notice(_KIND_AT[number], body)


def _letter(view: memoryview, codec: Codec, expects: Expects) -> Message | None:
    parts = {_LETTER_KIND: memoryview(b""), _LETTER_BODY: memoryview(b"")}
    for number, wire_type, value in read_fields(view):
        if wire_type != LENGTH or isinstance(value, int) or number not in parts or len(parts[number]):
            raise WireError("one kind and one body in a letter", f"field {number} of wire type {wire_type}")
        parts[number] = value
    kind = bytes(parts[_LETTER_KIND][:_LONGEST_KIND]).decode(errors="replace")
    letter = codec.letter(kind, parts[_LETTER_BODY])
    return letter.decode() if expects(letter.kind, letter.round) else None


def _notice(kind: type, body: memoryview) -> Parcel:
    if len(body) > FRAME_ALLOWANCE:
        raise WireError(f"a {kind.__name__} of at most {FRAME_ALLOWANCE} bytes", f"{len(body)}")
    try:
        proto = _PLAIN[kind].FromString(bytes(body))
    except DecodeError as bad:
        raise WireError(f"a {kind.__name__}", f"what protobuf cannot read: {bad}") from bad
    values = {}
    for field in proto.DESCRIPTOR.fields:
        value = getattr(proto, field.name)  # our own field names, read from the descriptor
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = {escaped(key): escaped(said) for key, said in value.items()}
        elif field.is_repeated:
            value = tuple(value)
        values[field.name] = _harmless(value)
    return kind(**values)  # type: ignore[no-any-return]


def _harmless(value: Any) -> Any:
    """Escapes texts before they are stored, compared and printed."""
    if isinstance(value, tuple):
        return tuple(map(_harmless, value))
    return escaped(value) if isinstance(value, str) else value
