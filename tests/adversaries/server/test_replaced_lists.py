"""A server that passes on guesses in the place of a party's list, where lists are not signed.

It compares what comes back with what it relays, and has the positions of equal elements undone: it then knows which of
its guesses a party holds, common to all or not. docs/members_that_lie.md bounds it by the length of that list.

Bounds: alignment (server).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import Points, Positions
from colonnade.common.alignment.psi_member import tag_of
from colonnade.common.alignment.scratch import NUMBER, Scratch, to_records
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import ELEMENT, Secret, hash_to_curve
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import ContractError
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.server.alignment import relay
from tests.support.alignment import federation
from tests.support.kept import Found, Members

TABLES = {
    SERVER: ["ada", "bob", "cyd", "dan", "eve", "fay"],
    "party1": ["fay", "bob", "gus", "ada", "hal", "dan", "ivy"],
    "party2": ["dan", "jim", "bob", "ada", "eve"],
}
GUESSES = ("nobody", "hal", "jim", "ivy", "cyd")
SECRET = Secret(b"g" * 32)


@dataclass
class Liar:
    """The server: what it passes on to party1, and what it has of it.

    Args:
        guesses: in the place of party2's list.
    """

    there: Members
    guesses: Sequence[str] = GUESSES
    told: int = 0  # messages of points to party1, two blocks in a stage
    heard: list[bytes] = field(default_factory=list)
    named: list[int] = field(default_factory=list)

    @property
    def raised(self) -> Tensor:
        agreed = self.there.agreed
        tag = tag_of(Session("test", f"run{self.there.runs}", 1, agreed.hashes()))
        keys = RowKeys.of(self.guesses, agreed.keys, SERVER).values
        return to_tensor(SECRET.raise_all(hash_to_curve(keys, tag))).view(-1, ELEMENT)

    def change(self, source: str, target: str, item: Any) -> Any:
        if (source, target) == (SERVER, "party1") and isinstance(item, Points):
            self.told += 1
            return replace(item, points=self.raised) if self.told == 3 else item  # its second list, the first block
        if (source, target) == ("party1", SERVER) and isinstance(item, Points):
            self.heard.append(to_bytes(item.points))
        if (source, target) == ("party1", SERVER) and isinstance(item, Positions) and not self.named:
            self.named = item.positions.tolist()
        return item

    def compare(self, lists: Any, folder: Path | None, _width: int) -> tuple[int, dict[str, Scratch]]:
        """In the place of the true comparison: the positions of those guesses that are in party1's list."""
        own = b"".join(self.heard[:2])
        held = {own[at : at + ELEMENT] for at in range(0, len(own), ELEMENT)}
        back = SECRET.inverse().raise_all(self.heard[4])
        equal = [at for at in range(len(self.guesses)) if back[at * ELEMENT : (at + 1) * ELEMENT] in held]
        places = {owner: Scratch(NUMBER, folder) for owner in lists}
        for owner, scratch in places.items():
            scratch.write(0, to_records(torch.tensor(equal if owner == "party2" else range(len(equal)))))
        return len(equal), places

    def run(self, monkeypatch: pytest.MonkeyPatch) -> Found:
        monkeypatch.setattr(relay, "compare", self.compare)
        return self.there.run(self.change)


def members(folder: Path) -> Members:
    return Members(folder, federation(2), {name: list(own) for name, own in TABLES.items()}, days=0)


def test_it_learns_which_of_as_many_guesses_a_party_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of keys that nobody else has; the parties end with rows that do not belong together, and notice nothing."""
    liar = Liar(members(tmp_path))
    found = liar.run(monkeypatch)
    assert sorted(GUESSES[at] for at in liar.named) == ["hal", "ivy"]
    assert len(GUESSES) == len(TABLES["party2"])
    assert all(isinstance(rows, Tensor) for rows in found.rows.values())


def test_more_guesses_than_that_list_is_long_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Liar(members(tmp_path), (*GUESSES, "gus")).run(monkeypatch)
    assert isinstance(refused := found.rows["party1"], ContractError) and refused.party == SERVER
    assert "expected keys = 5 in dimension 0" in str(refused)
