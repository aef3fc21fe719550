"""Bytes as tensors, and pieces end to end."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.messaging.raw import lay_out, take_apart, to_bytes, to_tensor

PIECES = st.lists(st.binary(max_size=20), max_size=6)


@given(content=st.binary(max_size=200))
def test_bytes_are_numbers_from_0_to_255(content: bytes) -> None:
    tensor = to_tensor(content)
    assert (tensor.dtype, tensor.tolist()) == (torch.uint8, list(content))
    assert to_bytes(tensor) == content


def test_bytes_that_do_not_lie_side_by_side_are_read_in_their_order() -> None:
    assert to_bytes(torch.arange(6, dtype=torch.uint8)[::2]) == b"\x00\x02\x04"
    assert to_bytes(torch.arange(6, dtype=torch.uint8).view(2, 3).T) == b"\x00\x03\x01\x04\x02\x05"


def test_a_tensor_is_its_own() -> None:
    content = b"abc"
    tensor = to_tensor(content)
    tensor.zero_()
    assert content == b"abc" and to_bytes(to_tensor(content)) == b"abc"


@given(pieces=PIECES)
def test_pieces_come_apart_as_they_were_laid_out(pieces: list[bytes]) -> None:
    flat, lengths = lay_out([to_tensor(piece) for piece in pieces])
    assert (flat.dtype, lengths.dtype) == (torch.uint8, torch.int64)
    assert (to_bytes(flat), lengths.tolist()) == (b"".join(pieces), [len(piece) for piece in pieces])
    assert [to_bytes(piece) for piece in take_apart(flat, lengths)] == pieces


@given(pieces=PIECES.filter(len), change=st.integers(-30, 30).filter(bool), data=st.data())
def test_lengths_that_are_not_those_of_the_whole_are_refused(
    pieces: list[bytes], change: int, data: st.DataObject
) -> None:
    flat, lengths = lay_out([to_tensor(piece) for piece in pieces])
    lengths[data.draw(st.integers(0, len(pieces) - 1))] += change
    with pytest.raises(ValueError, match=rf"^lengths that add up to {len(flat)} bytes, not \[-?\d+"):
        take_apart(flat, lengths)


@pytest.mark.parametrize("lengths", [[-1, 4], [3, 1, -1], [2**62, 2**62, 2**62, 2**62, 3], [2], []], ids=str)
def test_lengths_that_only_seem_to_add_up_are_refused(lengths: list[int]) -> None:
    """Neither negative ones, nor some whose sum overflows to 3 in 64 bits."""
    with pytest.raises(ValueError, match="lengths that add up to 3 bytes"):
        take_apart(torch.zeros(3, dtype=torch.uint8), torch.tensor(lengths, dtype=torch.int64))
