"""Declaring messages, refusing those that break their contract, and bytes as tensors."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import (
    SCALAR_ALLOWANCE,
    Message,
    TensorSpec,
    all_finite,
    check,
    check_exact,
    check_finite,
    largest_bytes,
    message,
    payload_bytes,
    schema,
    tensors,
)
from colonnade.common.messaging.raw import lay_out, take_apart, to_bytes, to_tensor


@message
class Mixed(Message):
    name: str
    loss: float
    h: Annotated[Tensor, TensorSpec("rows", "width")]
    index: Annotated[Tensor, TensorSpec("rows", dtype=torch.int64)]
    total: Annotated[Tensor, TensorSpec(dtype=torch.float64)]


def mixed(
    h: Tensor | None = None, index: Tensor | None = None, total: Tensor | None = None, loss: float = 0.5
) -> Mixed:
    return Mixed(
        3,
        "x",
        loss,
        torch.ones(4, 2) if h is None else h,
        torch.arange(4) if index is None else index,
        torch.tensor(1.0, dtype=torch.float64) if total is None else total,
    )


LIMITS = {"rows": 4, "width": 2}


def test_a_schema_lists_every_field_in_order() -> None:
    assert list(schema(Mixed)) == ["round", "name", "loss", "h", "index", "total"]
    assert [schema(Mixed)[name] for name in ("round", "name", "loss")] == [int, str, float]
    assert str(schema(Mixed)["h"]) == "float32 (rows, width)"
    assert str(schema(Mixed)["total"]) == "float64 ()"


def test_a_field_of_another_type_is_refused_where_it_is_declared() -> None:
    @message
    class Odd(Message):
        names: list  # type: ignore[type-arg]

    with pytest.raises(TypeError, match=r"Odd.names: a message holds tensors, int, float, str and bool"):
        schema(Odd)


def test_a_message_is_frozen_and_compares_by_identity() -> None:
    one = mixed()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.round = 4  # type: ignore[misc]
    assert one == one and one != mixed()


def test_payload_is_the_bytes_of_the_tensors_alone() -> None:
    assert list(tensors(mixed())) == ["h", "index", "total"]
    assert payload_bytes(mixed()) == 4 * 2 * 4 + 4 * 8 + 8


def test_the_largest_message_follows_from_the_largest_dimensions() -> None:
    assert largest_bytes(Mixed, LIMITS) == SCALAR_ALLOWANCE + payload_bytes(mixed())
    assert largest_bytes(Mixed, {"rows": 8, "width": 2}) == SCALAR_ALLOWANCE + 2 * (32 + 32) + 8


def test_a_message_within_its_limits_is_let_through() -> None:
    for fine in (mixed(), mixed(torch.ones(0, 2), torch.arange(0))):
        check("ada", fine, LIMITS)
        check_finite("ada", fine)
    check_exact("ada", mixed(), {"rows": 4})
    check_exact("ada", mixed(), {})


@pytest.mark.parametrize(
    ("broken", "field", "said"),
    [
        (mixed(torch.ones(5, 2)), "h", "expected rows <= 4 in dimension 0, got shape (5, 2)"),
        (mixed(torch.ones(4, 3)), "h", "expected width <= 2 in dimension 1, got shape (4, 3)"),
        (mixed(torch.ones(8)), "h", "expected float32 (rows, width), got shape (8,)"),
        (mixed(torch.ones(4, 2).half()), "h", "expected float32 (rows, width), got float16"),
        (mixed(index=torch.arange(4).int()), "index", "expected int64 (rows), got int32"),
        (mixed(total=torch.ones(1, dtype=torch.float64)), "total", "expected float64 (), got shape (1,)"),
        (mixed(total=torch.tensor(math.nan).double()), "total", "expected finite numbers, got 1 of 1 not finite"),
        (mixed(torch.tensor([[1, math.inf]])), "h", "expected finite numbers, got 1 of 2 not finite"),
        (mixed(loss=math.nan), "loss", "expected a finite number, got nan"),
        (mixed(loss=-math.inf), "loss", "expected a finite number, got -inf"),
    ],
    ids=lambda value: value if isinstance(value, str) and "expected" in value else "",
)
def test_a_broken_contract_names_party_kind_field_expected_and_got(broken: Mixed, field: str, said: str) -> None:
    with pytest.raises(ContractError) as refused:
        check("ada", broken, LIMITS)
        check_finite("ada", broken)
    assert str(refused.value) == f"ada sent Mixed.{field}: {said}"
    assert (refused.value.party, refused.value.kind, refused.value.field) == ("ada", "Mixed", field)


def test_exact_dimensions_must_be_equal_where_they_are_named() -> None:
    with pytest.raises(ContractError, match=r"Mixed.h: expected rows = 5 in dimension 0, got shape \(4, 2\)"):
        check_exact("ada", mixed(), {"rows": 5})


@given(st.lists(st.floats(width=32), max_size=30))
def test_finiteness_is_that_of_every_entry(values: list[float]) -> None:
    assert all_finite(torch.tensor(values)) == all(map(math.isfinite, values))


def test_a_sum_that_overflows_is_looked_at_again() -> None:
    assert all_finite(torch.full((4,), 3e38))
    assert all_finite(torch.full((40_000,), 60_000.0).half())
    assert not all_finite(torch.tensor([math.inf, -math.inf]))


def test_whole_numbers_are_finite() -> None:
    assert all_finite(torch.tensor([2**62, 2**62, 2**62]))


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
