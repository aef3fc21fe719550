"""The protobuf wire format by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.errors import ContractError
from colonnade.common.wire.codec import (
    EIGHT_BYTES,
    LENGTH,
    VARINT,
    WireError,
    nested,
    read_fields,
    read_varint,
    tag,
    varint,
)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_varint_is_read_back_and_no_further(value: int, after: bytes) -> None:
    encoded = varint(value)
    assert read_varint(memoryview(encoded + after), 0) == (value, len(encoded))


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (150, "9601")])
def test_varints_are_those_of_the_protobuf_documentation(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@pytest.mark.parametrize(
    "endless", [b"\xff" * 11, b"\x80" * 11 + b"\x01", b"\xff" * 9 + b"\x02"], ids=["11 bytes", "12 bytes", "65 bits"]
)
def test_a_varint_of_more_than_64_bits_is_refused(endless: bytes) -> None:
    with pytest.raises(WireError, match="a number of at most 64 bits"):
        read_varint(memoryview(endless), 0)


@given(st.integers(128, 2**64 - 1), st.data())
def test_a_varint_cut_short_is_refused(value: int, data: st.DataObject) -> None:
    encoded = varint(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(WireError, match="the end of the frame"):
        read_varint(memoryview(encoded[:cut]), 0)


ONE_FIELD = st.one_of(
    st.tuples(st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(EIGHT_BYTES), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(LENGTH), st.binary(max_size=300)),
)


def field(number: int, wire_type: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return tag(number, VARINT) + varint(value)
    return b"".join(nested(number, [value])) if wire_type == LENGTH else tag(number, EIGHT_BYTES) + value


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), ONE_FIELD), max_size=5))
def test_every_field_is_read_back_in_order(fields: list[tuple[int, tuple[int, int | bytes]]]) -> None:
    frame = b"".join(field(number, *content) for number, content in fields)
    read = [(n, (w, v if isinstance(v, int) else bytes(v))) for n, w, v in read_fields(memoryview(frame))]
    assert read == fields


def test_a_value_is_a_slice_of_the_frame_and_no_copy() -> None:
    frame = b"".join(nested(1, [b"abc"]))
    ((_, _, value),) = read_fields(memoryview(frame))
    assert isinstance(value, memoryview) and value.obj is frame


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_refused(noise: bytes) -> None:
    try:
        read = list(read_fields(memoryview(noise)))
    except WireError:
        return
    assert len(read) <= len(noise)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (tag(1, 3), "expected wire type 0, 1 or 2, got 3"),
        (tag(1, 5) + b"1234", "expected wire type 0, 1 or 2, got 5"),
        (tag(1, LENGTH) + varint(2**63) + b"few", f"expected {2**63} bytes more, got 3"),
        (tag(1, EIGHT_BYTES) + b"seven..", "expected 8 bytes more, got 7"),
        (tag(1, VARINT), "expected a number, got the end of the frame"),
    ],
    ids=["group", "four bytes", "length beyond the end", "eight bytes cut short", "no value"],
)
def test_a_malformed_field_is_refused_in_words(frame: bytes, said: str) -> None:
    with pytest.raises(WireError) as refused:
        list(read_fields(memoryview(frame)))
    assert str(refused.value) == f"a frame: {said}"


@pytest.mark.parametrize(
    ("where", "said"),
    [("Embedding.h", "ada sent Embedding.h: expected x, got y"), ("a frame", "ada sent a frame: expected x, got y")],
)
def test_a_wire_error_becomes_a_contract_error_of_its_sender(where: str, said: str) -> None:
    broken = WireError("x", "y", where).of("ada")
    assert isinstance(broken, ContractError) and str(broken) == said
