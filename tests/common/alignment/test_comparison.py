"""The comparison of raised lists, and the ring that brings them there."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from common.alignment.comparison import compare
from common.alignment.ring import Ring
from common.errors import ContractError


def points(numbers: list[int]) -> Tensor:
    """Elements that end, begin or are filled with zeros, as elements of the curve may."""
    rows = [(0).to_bytes(30) + n.to_bytes(1) + b"\0" for n in numbers]
    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(-1, 32)


@given(st.lists(st.lists(st.integers(0, 20), min_size=1, unique=True), min_size=2, max_size=5))
def test_places_are_those_of_a_plain_join(lists: list[list[int]]) -> None:
    found = compare({str(n): points(numbers) for n, numbers in enumerate(lists)})
    common = [[numbers[at] for at in found[str(n)].tolist()] for n, numbers in enumerate(lists)]
    assert set(common[0]) == set.intersection(*map(set, lists)) and len(common[0]) == len(set(common[0]))
    assert all(own == common[0] for own in common)


def test_an_element_twice_is_its_owners() -> None:
    with pytest.raises(ContractError, match="bob"):
        compare({"ada": points([1, 2]), "bob": points([3, 1, 3])})


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(1, 9))
def test_every_list_meets_everybody_once_and_comes_back_to_its_owner(sizes: list[int], block: int) -> None:
    ring = Ring(tuple(sizes), block)
    seats = range(ring.seats)
    for owner in seats:
        way = [seat for stage in seats for seat in seats if ring.owner(seat, stage) == owner]
        back = [seat for stage in seats for seat in seats if ring.owner_back(seat, stage) == owner]
        assert way == [(owner + n) % ring.seats for n in seats] and back == way[::-1]
        spans = [ring.span(owner, number) for number in range(ring.blocks())]
        assert [row for span in spans for row in range(sizes[owner])[span]] == list(range(sizes[owner]))
        assert max(ring.length(owner, number) for number in range(ring.blocks())) <= block


def raised_before(ring: Ring, seat: int, owner: int) -> frozenset[int]:
    """Who has raised a list when a seat sees it."""
    way = [(owner + step) % ring.seats for step in range((seat - owner) % ring.seats)]
    return frozenset(each for each in way if ring.raises(each, owner))


@pytest.mark.parametrize("seats", range(2, 8))
def test_a_party_sees_no_two_lists_of_the_same_secrets_and_none_without_another_member_s(seats: int) -> None:
    ring = Ring((1,) * seats, 1)
    for seat in range(1, seats):
        seen = [raised_before(ring, seat, owner) - {seat} for owner in range(seats) if owner != seat]
        # Its own list, or a dictionary, it can raise to anything that it knows: nothing, for the others.
        assert len({*seen, frozenset()}) == seats


@pytest.mark.parametrize("seats", range(2, 8))
def test_what_parties_can_compare_together_is_what_the_documentation_says(seats: int) -> None:
    """The server's list never, and another's only where the party before its owner is one of them."""
    ring = Ring((1,) * seats, 1)
    for some in range(1, 2 ** (seats - 1)):
        told = {seat for seat in range(1, seats) if some >> (seat - 1) & 1}
        seen = {owner: {raised_before(ring, seat, owner) - told for seat in told - {owner}} for owner in range(seats)}
        others = set(range(seats)) - told
        for owner in others:
            assert all(owner in secrets for secrets in seen[owner])  # none goes with a dictionary
        for one, other in combinations(range(seats), 2):
            if seen[one] & seen[other]:
                assert all(owner and before(owner, seats) in told for owner in {one, other} & others)


def before(owner: int, seats: int) -> int:
    """The party before a party: the server is no party."""
    return owner - 1 or seats - 1
