"""Members that put together what they see of a party's lists: both its neighbours, or the server and another party.

Bounds: alignment (both); kept alignments (both).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from colonnade.client.alignment.matching import PartyProving
from colonnade.common.alignment.messages import Points
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.messaging.raw import to_bytes
from tests.support.alignment import align, federation
from tests.support.kept import Members

TABLES = {
    SERVER: [f"person {n}" for n in range(30)],
    "party1": [f"person {n}" for n in range(20)],
    "party2": [f"person {n}" for n in range(0, 40, 2)],
    "party3": [f"person {n}" for n in range(0, 40, 3)],
}


def cut(elements: bytes | Tensor, width: int) -> list[bytes]:
    raw = elements if isinstance(elements, bytes) else to_bytes(elements)
    return [raw[at : at + width] for at in range(0, len(raw), width)]


@dataclass
class Seen:
    """Data of the colluders: their hands, by place, and what party3 gets from party2, by stage."""

    hands: dict[int, PsiMember] = field(default_factory=dict)
    came: dict[int, bytes] = field(default_factory=dict)

    def watch_hands(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = PsiMember.__init__

        def made(hand: PsiMember, ring: PsiRing, index: int, *more: Any, **named: Any) -> None:
            self.hands[index] = hand
            make(hand, ring, index, *more, **named)

        monkeypatch.setattr(PsiMember, "__init__", made)

    def sent_by_party1(self) -> bytes:
        """Its own list, in the order of its table."""
        return self.hands[1].exponent.keys([key.encode() for key in TABLES["party1"]], self.hands[1]._tag)


class TestBothNeighbours:
    """Of party2: party1 sends it lists, and party3 gets them. The server does not take part."""

    def run(self, checks: str, monkeypatch: pytest.MonkeyPatch) -> Seen:
        seen = Seen()
        seen.watch_hands(monkeypatch)
        kind = PartyProving if checks == "proofs" else PsiMember
        take: Any = kind.take

        def taken(own: Any, stage: int, block: int, came: Tensor) -> Any:
            if checks != "proofs" and own.seat == 3:
                seen.came[stage] = to_bytes(came)
            elif checks == "proofs" and own.book.seat == 3:
                seen.came[stage] = own._sealed.open("party2", to_bytes(came), "list of an alignment", stage, block)
            return take(own, stage, block, came)

        monkeypatch.setattr(kind, "take", taken)
        align(federation(3, align_checks=checks), TABLES, block=500)
        return seen

    def test_with_proofs_learn_which_of_their_keys_it_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Common to all or not: each element of party1's list lies beside what party2 has made of it."""
        pytest.importorskip("coincurve")
        seen = self.run("proofs", monkeypatch)
        width, bought = 64, seen.hands[1].exponent
        passed = cut(seen.came[1][: 2 * width * len(TABLES["party1"])], 2 * width)
        made = {pair[width:]: pair[:width] for pair in passed}
        alone = set(cut(seen.came[0][: width * len(TABLES["party2"])], width))
        raised = dict(zip(TABLES["party1"], cut(seen.sent_by_party1(), width), strict=True))
        learned = {key for key, element in raised.items() if bought.take_back(made[element]) in alone}
        assert learned == set(TABLES["party1"]) & set(TABLES["party2"]) != set.intersection(*map(set, TABLES.values()))

    def test_without_proofs_learn_how_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In an order that party2 has drawn, with no element of party1's list beside its own."""
        seen = self.run("none", monkeypatch)
        bought, honest = seen.hands[1].exponent, seen.hands[2].exponent
        back, alone = cut(bought.take_back(seen.came[1]), 32), cut(seen.came[0], 32)
        assert len(set(back) & set(alone)) == len(set(TABLES["party1"]) & set(TABLES["party2"]))
        sent = cut(seen.sent_by_party1(), 32)
        assert not set(sent) & {*back, *alone, *cut(seen.came[1], 32)}
        order = [back.index(honest.elements(bought.take_back(element))) for element in sent]
        assert sorted(order) == list(range(len(sent))) != order


class TestSeveralAlignments:
    """With kept exponents: the server and party1 against party2."""

    def lists(self, there: Members, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[bytes]]:
        """Of one alignment, every list raised to party2's secret alone, by owner: what the two can compute."""
        seen = Seen()
        with monkeypatch.context() as patch:
            seen.watch_hands(patch)
            found = there.run()
        assert not any(found.reused.values())
        said = [to_bytes(m.points) for by, _, m in found.messages if by == "party2" and isinstance(m, Points)]
        blocks = len(said) // 3
        own, party1, server = (b"".join(said[at * blocks : (at + 1) * blocks]) for at in range(3))
        party1 = seen.hands[1].exponent.take_back(party1)
        server = seen.hands[0].exponent.take_back(seen.hands[1].exponent.take_back(server))
        return {name: set(cut(own, 32)) for name, own in (("party2", own), ("party1", party1), (SERVER, server))}

    def both(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **policy: Any) -> Any:
        """The lists of two alignments, between which party1 has left one key out, and party2 another."""
        there = Members(folder, federation(2), {name: list(own) for name, own in TABLES.items() if name != "party3"})
        there.policies["party2"] = PolicyConfig(**policy)
        first = self.lists(there, monkeypatch)
        there.tables["party1"].remove("person 6")
        there.tables["party2"].remove("person 38")
        return first, self.lists(there, monkeypatch)

    def test_they_learn_the_overlaps_and_whether_it_holds_the_keys_in_which_their_lists_differ(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = self.both(tmp_path, monkeypatch)
        assert len(first["party2"] & second["party2"]) == 19
        assert [len(lists["party2"] & lists["party1"]) for lists in (first, second)] == [10, 9]
        assert len(first["party2"] & first[SERVER]) == 15
        (left_out,) = first["party1"] - second["party1"]
        assert left_out in second["party2"]  # party2 has the sixth person

    def test_a_party_that_keeps_nothing_shows_them_no_overlap(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of two alignments; within each they see what they see in one."""
        first, second = self.both(tmp_path, monkeypatch, reuse_alignment=False)
        assert not set().union(*first.values()) & set().union(*second.values())
        assert [len(lists["party2"] & lists["party1"]) for lists in (first, second)] == [10, 9]
