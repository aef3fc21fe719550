"""A party that opens wrong shares of the others' keys, so that a blinded sum cannot be recovered.

Bounds: blinded sums (party).
"""

from __future__ import annotations

import pytest

from colonnade.common.aggregation.messages import Masked, OpenedShares
from colonnade.common.aggregation.recovery import SharedKeys
from colonnade.common.errors import ContractError
from tests.protocols.test_blinded import run
from tests.support.federation import late

LIAR, ABSENT = "party2", "party4"


@pytest.fixture(autouse=True)
def _lying(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SharedKeys.open

    def opened(self: SharedKeys, round: int, *sets: frozenset[str]) -> OpenedShares:
        made = honest(self, round, *sets)
        if self._name == LIAR and round == 2:
            made.pads[:] ^= 1
        return made

    monkeypatch.setattr(SharedKeys, "open", opened)


slow = late(ABSENT, Masked, seconds=9.0, rounds=(2,), others=0.5)


def ended(parties: int, need: int) -> str:
    sets = (f"federation.parties={parties}", f"federation.quorum={{need: {need}, grace: 1}}")
    with pytest.raises(ContractError) as found:
        run("fdml", *sets, "federation.blinding.recovery=alone", "federation.evaluate.every=99", delay=slow)
    return str(found.value)


def test_the_liar_is_named_alone_where_others_opened_enough() -> None:
    """Six open where four are needed."""
    said = ended(7, 4)
    assert said.startswith(f"{LIAR} sent OpenedShares.pads: expected shares that fit to those of others")


def test_one_more_than_needed_names_those_that_opened() -> None:
    """Four open where three are needed, and nobody can tell which of them is wrong."""
    said = ended(5, 3)
    assert said.startswith("one of party1, party2, party3, party5 sent OpenedShares.pads")


def test_exactly_as_many_as_needed_are_refused_with_the_sum() -> None:
    said = ended(4, 3)
    assert said.startswith("one of party1, party2, party3, party4 sent Masked.words: expected masks that cancel")
    assert said.endswith("the shares of keys that party1, party2, party3 opened could not be compared with others")
