"""Lists of an alignment that are changed after their sender has committed itself to them: by it, or on their way.

Bounds: alignment (server, party).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.alignment.checks import ListDigest
from colonnade.common.alignment.messages import Pledge, Pledges, Points
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.alignment.store import KeptAlignment
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.signatures import ForgedError
from colonnade.common.errors import ContractError
from colonnade.common.messaging.raw import to_tensor
from tests.support.alignment import federation
from tests.support.kept import Found, Members

TABLES = {
    SERVER: ["ada", "bob", "cyd", "dan", "eve", "fay"],
    "party1": ["fay", "bob", "gus", "ada", "hal", "dan", "ivy"],
    "party2": ["dan", "jim", "bob", "ada", "eve"],
}
GUESSES = to_tensor(Secret(b"g" * 32).raise_all(hash_to_curve([b"guess %d" % n for n in range(5)], b"t"))).view(-1, 32)


def members(folder: Path, checks: str = "signed", **more: Any) -> Members:
    pins = make_federation(folder / "pki", ["party1", "party2"])
    agreed = federation(2, align_checks=checks, **more).model_copy(
        update={"server": pins.pop("server"), "parties": pins}
    )
    there = Members(folder, agreed, {name: list(own) for name, own in TABLES.items()})
    there.identities = {name: load_identity(folder / "pki" / name) for name in pins}
    return there


def changed(wrong: Callable[[Points], Any], sender: str, to: str, number: int = 1) -> Callable[[str, str, Any], Any]:
    """Alters one of the messages of points between two members."""
    seen = [0]

    def change(source: str, target: str, item: Any) -> Any:
        if (source, target) == (sender, to) and isinstance(item, Points) and len(item.points):
            seen[0] += 1
            return wrong(item) if seen[0] == number else item
        return item

    return change


def guesses(message: Points) -> Points:
    return replace(message, points=GUESSES[: len(message.points)])


def swapped(message: Points) -> Points:
    """Another order, which is no other list."""
    return replace(message, points=torch.flip(message.points, (0,)))


def error(found: Found, member: str) -> Exception:
    error = found.rows[member]
    assert isinstance(error, Exception)
    return error


class TestAList:
    """That differs from what its sender is committed to is not passed on."""

    def test_of_a_party_cannot_be_replaced_by_the_server(self, tmp_path: Path) -> None:
        """So that the server has the guesses of its own list alone, and not of every member's."""
        found = members(tmp_path).run(changed(guesses, SERVER, "party2"))
        assert isinstance(refused := error(found, "party2"), ContractError)
        assert str(refused) == (
            "party1 sent Points.points: expected the list that party1 has committed itself to, "
            "got another: party1 or server has changed it"
        )
        sent = [m for sender, _to, m in found.messages if sender == "party2" and isinstance(m, Points)]
        assert sum(len(m.points) for m in sent) == len(TABLES["party2"])  # its own list, and nothing of the guesses

    def test_can_be_replaced_without_checks(self, tmp_path: Path) -> None:
        """What the checks are for: nobody notices."""
        found = members(tmp_path, "none").run(changed(guesses, SERVER, "party2"))
        sent = [m for sender, _to, m in found.messages if sender == "party2" and isinstance(m, Points)]
        assert sum(len(m.points) for m in sent) == sum(map(len, TABLES.values()))

    @pytest.mark.parametrize("number", [1, 3], ids=["its own", "one that it passes on"])
    def test_that_a_party_changes_after_its_commitment_is_found(self, tmp_path: Path, number: int) -> None:
        """By the server where the server gets it, which knows that only the party can have changed it."""
        found = members(tmp_path).run(changed(guesses, "party2", SERVER, number))
        assert isinstance(refused := error(found, SERVER), ContractError) and refused.party == "party2"
        assert refused.expected == "the list that it has committed itself to"

    def test_for_the_next_party_is_found_by_it(self, tmp_path: Path) -> None:
        found = members(tmp_path).run(changed(guesses, "party1", SERVER, 2))
        assert isinstance(refused := error(found, "party2"), ContractError) and refused.party == "party1"

    def test_of_the_last_stage_is_found_by_the_server(self, tmp_path: Path) -> None:
        found = members(tmp_path).run(changed(guesses, "party1", SERVER, 5))
        assert isinstance(refused := error(found, SERVER), ContractError) and refused.party == "party1"

    def test_in_another_order_is_the_same(self, tmp_path: Path) -> None:
        """A member shuffles what it passes on: its order is committed to by nothing."""
        found = members(tmp_path).run(changed(swapped, "party1", SERVER, 5))
        assert isinstance(found.rows[SERVER], torch.Tensor)

    def test_with_an_element_twice_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also by a receiver that is no server: repeats would tell how often a key is passed on."""
        prepare, checks = PsiMember.prepare, ListDigest.digest

        def twice(own: PsiMember, block: int) -> None:
            if own.seat == 1:
                own.own_points = lambda span, real=own.own_points: real(slice(0, 1)).repeat(span.stop - span.start, 1)  # type: ignore[method-assign]
                monkeypatch.setattr(ListDigest, "digest", lambda _own: b"\1" * 32)
            prepare(own, block)
            monkeypatch.setattr(ListDigest, "digest", checks)

        monkeypatch.setattr(PsiMember, "prepare", twice)
        found = members(tmp_path).run()
        assert isinstance(refused := error(found, "party2"), ContractError) and "every element once, 6 come" in str(
            refused
        )

    def test_that_the_server_changes_while_it_holds_it_is_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server shuffles others' lists and does not raise them, so that its list is that of the last party."""
        raised = PsiMember.raise_points
        monkeypatch.setattr(
            PsiMember,
            "raise_points",
            lambda own, owner, points: raised(own, owner, points) if own.seat else GUESSES[: len(points)],
        )
        found = members(tmp_path).run()
        for party in ("party1", "party2"):
            assert isinstance(refused := error(found, party), ContractError) and refused.party == SERVER
            assert refused.expected == "the list that party2 has passed to it"


class TestAPledge:
    """Is its sender's, and for one alignment."""

    def exchanged(self, folder: Path, change: Callable[[Pledges], Pledges], to: str) -> Found:
        def alter(_sender: str, target: str, item: Any) -> Any:
            return change(item) if target == to and isinstance(item, Pledges) and len(item.digests) else item

        return members(folder).run(alter)

    def test_of_another_list_in_a_party_s_name_is_refused(self, tmp_path: Path) -> None:
        found = self.exchanged(
            tmp_path,
            lambda m: replace(m, digests=m.digests ^ torch.tensor([[0], [1], [0]], dtype=torch.uint8)),
            "party2",
        )
        assert isinstance(refused := error(found, "party2"), ForgedError)
        assert "the list of party1 in stage 0 is not signed by 'party1'" in str(refused)

    def test_that_differs_from_one_s_own_is_refused(self, tmp_path: Path) -> None:
        found = self.exchanged(
            tmp_path,
            lambda m: replace(m, digests=m.digests ^ torch.tensor([[0], [0], [1]], dtype=torch.uint8)),
            "party2",
        )
        assert "that of party2 in its place" in str(error(found, "party2"))

    def test_of_an_older_alignment_is_refused(self, tmp_path: Path) -> None:
        """Even of the same list: the exponents are kept, and so are the digests."""
        there, pledges = members(tmp_path), list[Pledge]()

        def keep(sender: str, _to: str, item: Any) -> Any:
            if sender == "party1" and isinstance(item, Pledge) and len(item.digest):
                pledges.append(item)
            return item

        there.run(keep)
        there.tables["party2"] = TABLES["party2"][:-1]  # else the kept alignment is used
        before = pledges[0]

        def again(sender: str, _to: str, item: Any) -> Any:
            if sender == "party1" and isinstance(item, Pledge) and len(item.certificate):
                assert torch.equal(item.digest, before.digest)
                return replace(item, signature=before.signature)
            return item

        assert isinstance(error(there.run(again), "party2"), ForgedError)

    def test_that_only_one_party_is_shown_is_in_no_later_agreement(self, tmp_path: Path) -> None:
        """The server names its own list otherwise to one party: their identities differ, and nothing is used again."""
        there, seen = members(tmp_path), dict[str, str]()

        def alter(_sender: str, target: str, item: Any) -> Any:
            if target == "party2" and isinstance(item, Pledges) and len(item.certificates):
                return replace(item, digests=item.digests ^ torch.tensor([[1], [0], [0]], dtype=torch.uint8))
            return item

        there.run(alter)
        for name in TABLES:
            kept = there.keeping(name).held(there.keys(name))
            assert kept is not None and set(kept.commitments) == set(TABLES)
            seen[name] = kept.identity
        assert seen[SERVER] == seen["party1"] != seen["party2"]
        assert set(there.run().reused.values()) == {0}


def test_commitments_are_kept_and_bind_the_kept_alignment(tmp_path: Path) -> None:
    there = members(tmp_path)
    there.run()
    kept = {name: there.keeping(name).held(there.keys(name)) for name in TABLES}
    alike = {tuple(sorted(own.commitments.items())) for own in kept.values() if own is not None}
    assert len(alike) == 1 and len(next(iter(alike))) == 3
    assert set(there.run().reused.values()) == {3}
    assert isinstance(kept["party1"], KeptAlignment)
    there.agreed = there.agreed.model_copy(update={"align_checks": "none"})
    assert there.keeping("party1").held(there.keys("party1")) is None
