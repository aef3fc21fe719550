"""The comparison of raised lists, the ring that brings them there, and the records that members keep of it."""

from __future__ import annotations

import hashlib
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.alignment.scratch import NUMBER, Sorter, compare, distinct, places_of, to_numbers
from colonnade.common.alignment.store import AlignmentRecord, kept_rows
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, ContractError, DataError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.rows import ServerRows
from tests.support.alignment import federation


def listed(elements: list[bytes], rows: int, bucket: int) -> Sorter:
    """A list as the server has it, in buckets of the size of the longest."""
    sorter = Sorter(rows, 32, 32 + NUMBER, None, bucket)
    points = np.frombuffer(b"".join(elements), dtype=np.uint8).reshape(-1, 32)
    for at in range(0, len(points), 3):
        sorter.add(np.hstack([points[at : at + 3], places_of(slice(at, min(at + 3, len(points))))]))
    return sorter


def element(n: int) -> bytes:
    """Elements that begin, end or are filled with zeros, as elements of the curve may."""
    return [bytes(30) + n.to_bytes(1) + b"\0", bytes([n]) + bytes(31), hashlib.sha256(bytes([n])).digest()][n % 3]


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, unique=True), min_size=2, max_size=5),
    st.sampled_from([1, 2, 5, 100]),
)
def test_places_are_those_of_a_plain_join(lists: list[list[int]], bucket: int) -> None:
    rows = max(map(len, lists))
    count, found = compare({str(n): listed([*map(element, own)], rows, bucket) for n, own in enumerate(lists)})
    common = [[own[at] for at in to_numbers(found[str(n)].read(0, count)).tolist()] for n, own in enumerate(lists)]
    assert set(common[0]) == set.intersection(*map(set, lists)) and len(common[0]) == len(set(common[0]))
    assert [element(n) for n in common[0]] == sorted(map(element, common[0]))
    assert all(own == common[0] for own in common)


def test_an_element_twice_is_its_owners() -> None:
    lists = {"ada": [1, 2], "bob": [3, 1, 3]}
    with pytest.raises(ContractError, match="bob"):
        compare({owner: listed([*map(element, own)], 3, 100) for owner, own in lists.items()})


@given(st.lists(st.integers(0, 60), max_size=40))
def test_rows_are_distinct_as_a_set_says(rows: list[int]) -> None:
    assert distinct(torch.tensor(rows, dtype=torch.int64), 61) == (len(set(rows)) == len(rows))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(1, 9))
def test_every_list_visits_every_member_once_and_returns_to_its_owner(sizes: list[int], block: int) -> None:
    ring = PsiRing(tuple(sizes), block)
    members = range(ring.members)
    for owner in members:
        way = [index for stage in members for index in members if ring.owner(index, stage) == owner]
        back = [index for stage in members for index in members if ring.owner_back(index, stage) == owner]
        assert way == [(owner + n) % ring.members for n in members] and back == way[::-1]
        spans = [ring.span(owner, number) for number in range(ring.blocks())]
        assert [row for span in spans for row in range(sizes[owner])[span]] == list(range(sizes[owner]))
        assert max(ring.length(owner, number) for number in range(ring.blocks())) <= block


def raised_before(ring: PsiRing, index: int, owner: int) -> frozenset[int]:
    """Members that have raised a list when a party index sees it."""
    way = [(owner + step) % ring.members for step in range((index - owner) % ring.members)]
    return frozenset(each for each in way if ring.raises(each, owner))


@pytest.mark.parametrize("members", range(2, 8))
def test_a_party_sees_no_two_lists_of_the_same_secrets_and_none_without_another_member_s(members: int) -> None:
    ring = PsiRing((1,) * members, 1)
    for index in range(1, members):
        seen = [raised_before(ring, index, owner) - {index} for owner in range(members) if owner != index]
        # Its own list, or a dictionary, it can raise to anything that it knows: nothing, for the others.
        assert len({*seen, frozenset()}) == members


@pytest.mark.parametrize("members", range(2, 8))
def test_colluding_parties_can_compare_only_the_documented_lists(members: int) -> None:
    """The server's list never, and another's only where the party before its owner is one of them."""
    ring = PsiRing((1,) * members, 1)
    for some in range(1, 2 ** (members - 1)):
        colluding = {index for index in range(1, members) if some >> (index - 1) & 1}
        seen = {
            owner: {raised_before(ring, index, owner) - colluding for index in colluding - {owner}}
            for owner in range(members)
        }
        others = set(range(members)) - colluding
        for owner in others:
            assert all(owner in secrets for secrets in seen[owner])  # none goes with a dictionary
        for one, other in combinations(range(members), 2):
            if seen[one] & seen[other]:
                assert all(owner and before(owner, members) in colluding for owner in {one, other} & others)


def before(owner: int, members: int) -> int:
    """The party before a party: the server is no party."""
    return owner - 1 or members - 1


ROWS = torch.tensor([2, 0])


def keys(*values: str) -> RowKeys:
    return RowKeys(tuple(value.encode() for value in values))


def test_the_record_survives_a_restart(tmp_path: Path) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1").keep("first", ROWS)
    record = AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1")
    assert record.number == "first" and torch.equal(record.rows("first"), ROWS)
    assert torch.equal(kept_rows(RunCache(tmp_path), "party1"), ROWS)


def test_no_key_and_no_plain_hash_of_a_key_is_on_the_disk(tmp_path: Path) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a secret key", "b", "c"), "party1").keep("first", ROWS)
    assert all(b"a secret key" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("changed", [("a", "c", "b"), ("a", "b"), ("a", "b", "C")])
def test_a_table_that_has_changed_is_refused(tmp_path: Path, changed: tuple[str, ...]) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1").keep("first", ROWS)
    with pytest.raises(DataError, match="party1: the keys of its table, or their order, have changed"):
        AlignmentRecord(RunCache(tmp_path), keys(*changed), "party1").rows("first")


def test_another_alignment_or_none_is_refused(tmp_path: Path) -> None:
    record = AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1")
    with pytest.raises(CheckpointError, match="goes on with the alignment second, and here is none"):
        record.rows("second")
    with pytest.raises(CheckpointError, match="party1: there is no alignment"):
        kept_rows(RunCache(tmp_path), "party1")
    record.keep("first", ROWS)
    with pytest.raises(CheckpointError, match="goes on with the alignment second, and here is first"):
        record.rows("second")


def test_keys_that_run_into_each_other_are_other_keys() -> None:
    assert keys("ab", "c").digest != keys("a", "bc").digest
    assert keys("b", "a").as_one == keys("a", "b").as_one != keys("a", "c").as_one


def test_the_server_goes_on_only_with_parties_that_hold_its_alignment() -> None:
    record = AlignmentRecord(RunCache(), keys("a", "b", "c"), SERVER)
    rows = ServerRows(federation(2), record, Telemetry(), {}, lambda _rows: None)
    assert rows.agreed({"party1": "left over", "party2": ""}) == ""
    record.keep("first", ROWS)
    assert rows.agreed({"party1": "first", "party2": "first"}) == "first"
    with pytest.raises(CheckpointError, match="party2 came without the file that says how"):
        rows.agreed({"party1": "first", "party2": "other"})
