"""A party that compares the lists which pass through it in two alignments with kept exponents.

Bounds: kept alignments (party).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.alignment.messages import Points
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.messaging.raw import to_bytes
from tests.support.alignment import federation
from tests.support.kept import Members

TABLES = {
    SERVER: [f"person {n}" for n in range(30)],
    "party1": [f"person {n}" for n in range(20)],
    "party2": [f"person {n}" for n in range(0, 40, 2)],
}


def lists(there: Members) -> tuple[set[bytes], set[bytes]]:
    """The lists that party1 gets in an alignment: the server's and party2's."""
    found = there.run()
    assert not any(found.reused.values())
    came = [to_bytes(m.points) for _, to, m in found.messages if to == "party1" and isinstance(m, Points)]
    blocks = len(came) // 3
    server, party2 = (b"".join(came[at * blocks : (at + 1) * blocks]) for at in range(2))
    return tuple({own[at : at + 32] for at in range(0, len(own), 32)} for own in (server, party2))  # type: ignore[return-value]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "drawn anew by party2"])
def test_it_sees_how_much_of_each_list_stayed_the_same_and_nothing_between_lists(tmp_path: Path, kept: bool) -> None:
    there = Members(tmp_path, federation(2), {name: list(own) for name, own in TABLES.items()})
    there.policies["party2"] = PolicyConfig(reuse_alignment=kept)
    server, party2 = lists(there)
    there.tables["party2"] = [*TABLES["party2"][:-3], "somebody else"]
    server_again, party2_again = lists(there)
    assert len(server & server_again) == len(TABLES[SERVER])
    assert len(party2 & party2_again) == (len(TABLES["party2"]) - 3 if kept else 0)
    assert not (server | server_again) & (party2 | party2_again)  # though many of their keys are the same
