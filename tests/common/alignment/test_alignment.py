"""Both sides of an alignment on the virtual clock, against a plain join."""

from __future__ import annotations

import random
from collections import Counter
from hashlib import blake2b, sha256

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import Points, Positions
from colonnade.common.alignment.psi_member import PsiMember, draw_for, tag_of
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.alignment.scratch import Scratch
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import PartyLost
from colonnade.common.messaging.message import payload_bytes
from colonnade.common.messaging.raw import to_bytes
from tests.support.alignment import KINDS, Found, align, federation

TABLES = {
    SERVER: ["ada", "bob", "cyd", "dan", "eve", "fay"],
    "party1": ["fay", "bob", "gus", "ada", "hal", "dan", "ivy"],
    "party2": ["dan", "jim", "bob", "ada", "eve"],
}


def members(parties: int) -> list[str]:
    return [SERVER, *federation(parties).names]


def errors(found: Found) -> dict[str, str]:
    return {member: str(result) for member, result in found.rows.items() if isinstance(result, Exception)}


@st.composite
def tables(draw: st.DrawFn, parties: int = 1) -> dict[str, list[str]]:
    """The server and at least this many parties, at most five; anything from nothing in common to everything."""
    names = members(draw(st.integers(parties, 5)))
    persons = [f"person {n}" for n in range(draw(st.integers(1, 14)))]
    some = st.lists(st.sampled_from(persons), min_size=1, unique=True)
    return {name: draw(some) for name in names}


def check_join(ids: dict[str, list[str]], found: Found) -> None:
    expected = set.intersection(*map(set, ids.values()))
    if not expected:
        assert set(errors(found)) == set(ids) and not found.kept
        assert all("no key is common to all members" in said for said in errors(found).values())
        return
    keys = found.common(ids)
    assert set(keys[SERVER]) == expected and len(keys[SERVER]) == len(expected)
    assert all(own == keys[SERVER] for own in keys.values())
    assert {number for number, _rows in found.kept.values()} == {found.kept[SERVER][0]}
    for member, rows in found.rows.items():
        assert isinstance(rows, torch.Tensor) and torch.equal(found.kept[member][1], rows)


@given(tables(), st.integers(1, 6))
def test_an_alignment_is_a_join(ids: dict[str, list[str]], block: int) -> None:
    check_join(ids, align(federation(len(ids) - 1), ids, block=block))


@pytest.mark.parametrize("checks", ["signed", "planted", "proofs"])
@settings(max_examples=6)
@given(data=st.data(), block=st.integers(4, 9))
def test_a_checked_alignment_is_a_join(checks: str, data: st.DataObject, block: int) -> None:
    if checks == "proofs":
        pytest.importorskip("coincurve")
    ids = data.draw(tables(2 if checks == "proofs" else 1))  # proofs are refused for one party
    check_join(ids, align(federation(len(ids) - 1, align_checks=checks), ids, block=block))


@pytest.mark.parametrize("parties", [1, 2, 5])
@pytest.mark.parametrize("ids", [["one"], ["one", "two", "three"]], ids=["one key", "three keys"])
def test_all_members_have_the_same_keys(parties: int, ids: list[str]) -> None:
    everyone = dict.fromkeys(members(parties), ids)
    check_join(everyone, align(federation(parties), everyone))


def test_the_common_set_is_the_same_in_every_session_and_the_order_is_not_the_tables() -> None:
    persons = [f"person {n:02}" for n in range(40)]
    everyone = dict.fromkeys(members(2), persons)
    orders = [align(federation(2), everyone, session=number).common(everyone)[SERVER] for number in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1]) == persons
    assert orders[0] != orders[1] and persons not in orders  # by chance once in 40! runs


def test_seeded_alignments_are_the_same_every_time() -> None:
    agreed = federation(2, keys={"seeded": True})
    first, again = (align(agreed, TABLES).common(TABLES) for _ in range(2))
    assert first == again


def test_a_straggler_changes_nothing() -> None:
    agreed = federation(2, keys={"seeded": True})
    late = align(agreed, TABLES, delay=lambda sender, _to, _item: 3.0 if sender == "party2" else 0.1)
    assert late.common(TABLES) == align(agreed, TABLES).common(TABLES)
    assert late.seconds > 10


def test_a_member_silent_for_too_long_is_named() -> None:
    found = align(federation(2), TABLES, delay=lambda sender, _to, _item: 1e6 if sender == "party2" else 0)
    assert isinstance(found.rows[SERVER], PartyLost) and "party2" in errors(found)[SERVER]


def test_keys_are_compared_as_agreed() -> None:
    ids = {SERVER: ["Ada ", "ＢＯＢ"], "party1": ["ada", "BOB"]}
    assert "no key is common" in errors(align(federation(1, keys={"unicode": "keep"}), ids))[SERVER]
    assert align(federation(1), ids).common(ids) == {SERVER: ["ＢＯＢ"], "party1": ["BOB"]}
    folded = align(federation(1, keys={"case": "fold"}), ids)
    assert sorted(folded.common(ids)[SERVER]) == ["Ada ", "ＢＯＢ"]


class TestWhatTravels:
    """Bytes and contents of all messages."""

    def test_bytes_are_those_of_the_formula_and_kinds_are_the_declared(self) -> None:
        found = align(federation(2), TABLES, block=4)
        sizes, common, n = {name: len(own) for name, own in TABLES.items()}, 3, 3
        sent: Counter[tuple[str, str]] = Counter()
        for sender, _to, message in found.messages:
            assert type(message) is KINDS[type(message).__name__]
            sent["up" if sender != SERVER else "down", type(message).__name__] += payload_bytes(message)
        # Every list is sent once by every party, and once to every party but its owner.
        assert sent["up", "Points"] == 32 * (n - 1) * sum(sizes.values())
        assert sent["down", "Points"] == 32 * sum(
            rows * (n - 1 if name == SERVER else n - 2) for name, rows in sizes.items()
        )
        assert sent["down", "Positions"] == 8 * common * n * (n - 1)
        assert sent["up", "Positions"] == 8 * common * (n - 1) * (n - 1)

    @pytest.mark.parametrize("checks", ["signed", "planted"])
    def test_checks_add_a_digest_a_stage_and_the_planted_keys(self, checks: str) -> None:
        found = align(federation(2, align_checks=checks), TABLES, block=4)
        found.common(TABLES)
        planted, n, sent = int(checks == "planted"), 3, Counter[str]()
        for sender, _to, message in found.messages:
            assert type(message) is KINDS[type(message).__name__]
            sent[type(message).__name__] += payload_bytes(message) if sender != SERVER else 0
        assert sent["Points"] == 32 * (n - 1) * (sum(map(len, TABLES.values())) + n * planted)
        assert sent["Pledge"] == 32 * (n - 1) * (n + planted)  # without certificates; where planted keys were, too

    def test_proofs_are_sent_in_boxes_of_one_size(self) -> None:
        """Pairs of points and a proof a block; single points of a member's own list; 28 bytes for a seal."""
        pytest.importorskip("coincurve")
        found = align(federation(2, align_checks="proofs"), {name: ["a", "b", "c"] for name in TABLES}, block=2)
        sizes = Counter(
            (sender, payload_bytes(message))
            for sender, _to, message in found.messages
            if sender != SERVER and type(message).__name__ == "Proved"
        )
        blocks = (2, 1)
        assert sizes == {
            **{("party1", 64 * rows + 28): 1 for rows in blocks},  # its own list, for party2
            **{("party1", 128 * rows + 64 + 28): 1 for rows in blocks},
            **{("party1", 128 * rows + 64): 1 for rows in blocks},  # the last stage is for the server
            **{("party2", 64 * rows): 1 for rows in blocks},
            **{("party2", 128 * rows + 64): 2 for rows in blocks},
        }
        assert not any(type(message).__name__ == "Points" for _from, _to, message in found.messages)

    def test_no_member_is_more_than_a_block_ahead(self) -> None:
        """Otherwise lists would pile up in memory: here those of party1, which sends its blocks long before party2."""
        late = align(
            federation(2), TABLES, block=2, delay=lambda sender, _to, _item: 9.0 if sender == "party2" else 0.1
        )
        late.common(TABLES)
        behind = 0
        for sender, to, message in late.messages:
            if isinstance(message, Points | Positions) and "party1" in (sender, to):
                behind += 1 if sender == "party1" else -1
                assert -1 <= behind <= 1
        assert behind == 0

    def test_no_key_and_no_hash_of_one_is_on_the_wire(self) -> None:
        """No value can be tested against a dictionary, not even with the tag."""
        found = align(federation(2), TABLES)
        tag = tag_of(Session("test", "a-run", 7))
        wire = [(to_bytes(m.points) if isinstance(m, Points) else repr(m).encode()) for _from, _to, m in found.messages]
        for key in {key for own in TABLES.values() for key in own}:
            for known in (key.encode(), hash_to_curve([key.encode()], tag)):
                assert not any(known in piece for piece in wire)

    def test_temporary_files_match_no_dictionary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        laid, write = list[bytes](), Scratch.write
        monkeypatch.setattr(
            Scratch, "write", lambda own, at, records: (laid.append(records.tobytes()), write(own, at, records))[1]
        )
        ids = {member: [f"the person {key}" for key in own] for member, own in TABLES.items()}
        align(federation(2), ids).common(ids)
        tag, disk = tag_of(Session("test", "a-run", 7)), b"".join(laid)
        assert len(disk) > 1000
        for key in {key.encode() for own in ids.values() for key in own}:
            hashes = (hash_to_curve([key], tag), sha256(key).digest(), blake2b(key, digest_size=32).digest())
            assert not any(known in disk for known in (key, *hashes))

    def test_the_server_learns_only_the_pattern_of_overlaps(self) -> None:
        """It knows the lists that hold each fully raised element, and no more."""
        agreed = federation(2, keys={"seeded": True})
        found = align(agreed, TABLES, block=100)
        last = max(m.round for _f, _t, m in found.messages if isinstance(m, Points))
        owners = {"party1": "party2", "party2": SERVER}  # holder and owner of each list in the last stage
        raised = {
            owners[f]: m for f, to, m in found.messages if to == SERVER and isinstance(m, Points) and m.round == last
        }
        elements = {o: {to_bytes(row) for row in m.points} for o, m in raised.items()}  # type: ignore[attr-defined]
        assert not elements["party2"] & elements[SERVER]  # its own list is still raised to its own secret
        inverse = Secret(draw_for(agreed, SERVER)(32)).inverse()
        own = {inverse.raise_all(element) for element in elements[SERVER]}
        assert len(elements["party2"] & own) == len({*TABLES["party2"]} & {*TABLES[SERVER]})

    @pytest.mark.parametrize("parties", [1, 3])
    def test_every_list_is_raised_by_every_party_and_the_server_s_twice_by_the_server(
        self, parties: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raised, raise_all = list[int](), Secret.raise_all
        monkeypatch.setattr(
            Secret, "raise_all", lambda own, elements: (raised.append(len(elements) // 32), raise_all(own, elements))[1]
        )
        persons = [f"person {n}" for n in range(6)]
        align(federation(parties), dict.fromkeys(members(parties), persons))
        assert sum(raised) == len(persons) * (parties**2 + parties + 2)

    def test_a_party_sees_no_two_lists_that_it_could_compare(self) -> None:
        """Although all members have the same keys, no element reaches a party twice."""
        persons = [f"person {n}" for n in range(6)]
        ids = dict.fromkeys(members(3), persons)
        found = align(federation(3), ids)
        for name in members(3)[1:]:
            came = [
                to_bytes(row)
                for _f, to, m in found.messages
                if to == name and isinstance(m, Points)
                for row in m.points
            ]
            assert len(came) == len(set(came)) == 3 * len(persons)

    def test_the_order_of_a_list_reveals_no_positions_of_rows(self) -> None:
        """The order in which an owner's list leaves is another than that of its table: with one secret, two orders."""
        keys = RowKeys(tuple(str(n).encode() for n in range(50)))
        ring = PsiRing((50, 50), 50)
        draws = iter([b"s" * 32, bytes(range(200)) * 2, b"s" * 32, bytes(reversed(range(200))) * 2])
        one, other = (PsiMember(ring, 0, keys, b"tag", lambda n: next(draws)[:n]).give(0, 0) for _ in range(2))
        assert not torch.equal(one, other)
        assert {to_bytes(row) for row in one} == {to_bytes(row) for row in other}

    def test_an_order_is_that_of_the_numbers_that_were_drawn(self) -> None:
        """A list of several buckets, against a plain sort: all orders are equally likely."""
        rows, drawn = 40_000, bytearray()

        def draw(length: int) -> bytes:
            drawn.extend(numbers := random.randbytes(length))
            return numbers

        hand = PsiMember(PsiRing((rows, rows), 100), 0, RowKeys(tuple(b"%d" % n for n in range(rows))), b"tag", draw)
        hand.give(0, 0)
        numbers = [bytes(drawn[at : at + 8]) for at in range(32, len(drawn), 8)]
        assert len(numbers) == rows
        assert hand.undo(0, torch.arange(rows)).tolist() == sorted(range(rows), key=numbers.__getitem__)


class TestSorted:
    """`align: sorted`."""

    def test_rows_are_in_the_order_of_keys(self) -> None:
        ids = {SERVER: ["b", "a", "c"], "party1": ["c", "b", "a"], "party2": ["a", "b", "c"]}
        keys = align(federation(2, "sorted"), ids).common(ids)
        assert all(own == ["a", "b", "c"] for own in keys.values())

    def test_other_keys_are_refused_by_all_members(self) -> None:
        ids = {SERVER: ["b", "a", "c"], "party1": ["c", "b", "x"], "party2": ["a", "b", "c"]}
        said = errors(align(federation(2, "sorted"), ids))
        assert set(said) == set(ids) and all("the members' keys are not the same" in words for words in said.values())

    def test_other_numbers_are_named(self) -> None:
        ids = {SERVER: ["b", "a", "c"], "party1": ["c", "b"], "party2": ["a", "b", "c"]}
        said = errors(align(federation(2, "sorted"), ids))
        assert said[SERVER] == "federation.align = sorted: party1 has 2 keys, the server 3"

    def test_the_relay_sees_one_element_a_member(self) -> None:
        ids = {name: ["b", "a", "c"] for name in members(2)}
        messages = align(federation(2, "sorted"), ids).messages
        points = [len(m.points) for sender, _to, m in messages if sender != SERVER and isinstance(m, Points)]
        assert points == [1] * 6
