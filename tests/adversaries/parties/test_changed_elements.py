"""A member that does not raise a list as agreed, or changes positions: found by planted keys, or by proofs.

Bounds: alignment (server, party).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.alignment.checks import planted_among
from colonnade.common.alignment.messages import Positions, Proved
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import Secret
from colonnade.common.crypto.lengths import OVERHEAD
from colonnade.common.crypto.proven import Multiplier, points_of
from colonnade.common.crypto.sealing import SealError
from colonnade.common.errors import ContractError, PeerError
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.server.alignment import relay
from tests.support.alignment import Found, align, federation

ROWS = 200
MEMBERS = (SERVER, "party1", "party2")
TABLES = {name: [f"person {n}" for n in range(ROWS)] for name in MEMBERS}


def agreed(checks: str = "planted", seed: int = 0) -> Any:
    """With secrets that can be computed, so that a test has the same result every time."""
    return federation(2, align_checks=checks, keys={"seeded": True}, seed=seed)


def wrongly(chosen: Sequence[int], how: Callable[[Tensor], Tensor], liar: int, owner: int) -> Any:
    """A `raise_points` that changes some elements of one owner's list at one member."""
    raised = PsiMember.raise_points

    def change(own: PsiMember, whose: int, points: Tensor) -> Tensor:
        result = raised(own, whose, points)
        if (own.seat, whose) == (liar, owner) and len(result) >= ROWS:
            result = result.clone()
            result[list(chosen)] = how(points[list(chosen)])
        return result

    return change


def by_another(points: Tensor) -> Tensor:
    return to_tensor(Secret(b"another secret of thirty-two byt").raise_all(to_bytes(points))).view(-1, 32)


def errors(found: Found) -> dict[str, str]:
    return {name: str(rows) for name, rows in found.rows.items() if isinstance(rows, Exception)}


class TestElements:
    """Raised to another exponent."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("owner", [0, 1])
    def test_are_found_by_all_members(self, monkeypatch: pytest.MonkeyPatch, owner: int, seed: int) -> None:
        """A hundred of them. Nothing is kept."""
        chosen = random.Random(seed).sample(range(ROWS), 100)
        monkeypatch.setattr(PsiMember, "raise_points", wrongly(chosen, by_another, 2, owner))
        found = align(agreed(seed=seed), TABLES, block=500)
        assert set(errors(found)) == set(MEMBERS) and not found.kept
        assert all("a member has changed a list of the alignment" in said for said in errors(found).values())
        assert isinstance(found.rows["party1"], PeerError) and "proofs" in found.rows["party1"].hint
        assert not any(name in said for said in errors(found).values() for name in MEMBERS)  # any could have been it

    def test_go_unnoticed_without_checks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half of the common rows are lost."""
        monkeypatch.setattr(PsiMember, "raise_points", wrongly(range(100), by_another, 2, 1))
        for checks in ("none", "signed"):
            assert len(align(agreed(checks), TABLES, block=500).common(TABLES)[SERVER]) == ROWS - 100

    def test_that_the_server_leaves_out_of_the_comparison_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compare = relay.compare

        def half(lists: Any, *how: Any) -> Any:
            common, places = compare(lists, *how)
            return common // 2, places

        monkeypatch.setattr(relay, "compare", half)
        monkeypatch.setattr(relay, "refuse_missing", lambda _found, _planted: None)  # the liar does not tell on itself
        found = align(agreed(), TABLES, block=500)
        assert all("planted keys are missing" in errors(found)[party] for party in MEMBERS[1:])


class TestWithProofs:
    """The next member names the one that did not raise its list as agreed, even for one element."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("coincurve")

    def test_one_element_raised_to_another_exponent_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the server, of the last party, and by a party, of the one before it."""
        for liar, owner, verifier in ((2, 1, SERVER), (1, 0, "party2")):
            with monkeypatch.context() as patch:
                patch.setattr(PsiMember, "raise_points", wrongly([7], doubled, liar, owner))
                found = align(agreed("proofs"), TABLES, block=500)
            assert isinstance(refused := found.rows[verifier], ContractError) and refused.party == f"party{liar}"
            assert "elements that were not all raised to the sender's exponent" in str(refused) and not found.kept

    def test_an_element_that_was_put_in_before_raising_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The list is proved to be raised, and is not the one that the party got."""
        take = PsiMember.take

        def other(own: PsiMember, stage: int, block: int, points: Tensor) -> None:
            if own.seat == 1 and not stage:
                points = torch.cat([doubled(points[:1]), points[1:]])
            take(own, stage, block, points)
            if own.seat == 1 and not stage:
                own.came = came[0]

        came: list[bytes] = []
        prepare = PsiMember.prepare

        def remember(own: PsiMember, block: int) -> None:
            prepare(own, block)
            if not own.seat:
                came.append(own.sent)

        monkeypatch.setattr(PsiMember, "take", other)
        monkeypatch.setattr(PsiMember, "prepare", remember)
        refused = align(agreed("proofs"), TABLES, block=500).rows["party2"]
        assert isinstance(refused, ContractError) and refused.party == "party1"
        assert "other elements than those that it was sent" in str(refused)

    def test_the_server_can_neither_read_nor_change_what_parties_send_each_other(self) -> None:
        boxes: list[bytes] = []

        def change(sender: str, item: Any) -> Any:
            if sender == "party1" and isinstance(item, Proved) and len(item.box) == ROWS * 128 + 64 + OVERHEAD:
                boxes.append(to_bytes(item.box))
                return replace(
                    item, box=item.box ^ torch.tensor([0] * 20 + [1] + [0] * (len(item.box) - 21), dtype=torch.uint8)
                )
            return item

        found = align(agreed("proofs"), TABLES, block=500, change=change)
        assert boxes and isinstance(found.rows["party2"], SealError)

    def test_a_proof_of_another_alignment_is_refused(self) -> None:
        """Even with the same secrets and lists: the context has the pledges, and fresh keys."""
        before: list[Any] = []

        def record(sender: str, item: Any) -> Any:
            if sender == "party2" and isinstance(item, Proved) and len(item.box) == ROWS * 128 + 64:
                before.append(item)
            return item

        def again(sender: str, item: Any) -> Any:
            if sender == "party2" and isinstance(item, Proved) and len(item.box) == ROWS * 128 + 64:
                return replace(item, box=before[0].box)
            return item

        align(agreed("proofs"), TABLES, block=500, change=record)
        refused = align(agreed("proofs"), TABLES, block=500, change=again).rows[SERVER]
        assert isinstance(refused, ContractError) and refused.party == "party2"


def doubled(points: Tensor) -> Tensor:
    """Other points of the group."""
    return to_tensor(Multiplier(b"another").multiply(points_of(to_bytes(points)))).view(-1, 64)


class TestPositions:
    """Of the common rows, changed on their way back."""

    def swapped(self, count: int, sender: str, stage: int) -> Found:
        seen, order = [0], torch.arange(ROWS + planted_among([ROWS]))
        order[:count] = torch.roll(order[:count], 1)

        def change(source: str, item: Any) -> Any:
            if source == sender and isinstance(item, Positions) and len(item.positions) == len(order):
                seen[0] += 1
                if seen[0] == stage:
                    return replace(item, positions=item.positions[order])
            return item

        return align(agreed(), TABLES, block=500, change=change)

    def test_by_a_party_are_found(self) -> None:
        """The planted keys are all there, in other places at one member."""
        found = self.swapped(100, "party2", 1)
        assert any("planted keys have other places at" in said for said in errors(found).values())
        assert "party1" in errors(found) and SERVER in errors(found)

    def test_as_they_are_change_nothing(self) -> None:
        assert not errors(self.swapped(0, "party2", 1))

    def test_that_the_server_makes_up_are_found(self) -> None:
        found = self.swapped(100, SERVER, 1)
        assert any("planted keys have other places at" in said for said in errors(found).values())


@pytest.mark.parametrize("sizes", [[1], [19], [20], [1000, 7], [10**6, 10**6]])
def test_a_hundred_changed_elements_are_found_in_994_of_1000(sizes: list[int]) -> None:
    planted, longest = planted_among(sizes), max(sizes)
    assert (1 - planted / (longest + planted)) ** 100 <= 0.006
    assert planted <= longest / 19 + 1


def test_what_a_policy_counts_does_not_include_planted_keys() -> None:
    found = align(agreed(), {name: ["ada", *(f"{name} {n}" for n in range(40))] for name in MEMBERS})
    assert {len(rows) for rows in found.rows.values() if isinstance(rows, Tensor)} == {1}
    nothing = align(agreed(), {name: [f"{name} {n}" for n in range(40)] for name in MEMBERS})
    assert all("no key is common" in said for said in errors(nothing).values()) and len(errors(nothing)) == 3
