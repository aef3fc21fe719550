"""A server that names two sets of one round, to have both keys of a party opened or to sum over two sets.

The parties share keys of each round (`federation.blinding.recovery`); the server tells party1 other things than an
honest one does.

Bounds: blinded sums (server).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.messages import Arrived, OpenedShares, SetProofs
from colonnade.common.aggregation.summed_sets import SetError
from colonnade.common.errors import ContractError
from colonnade.common.protocols.fdml import Aggregate
from tests.protocols.test_blinded import LATE, run
from tests.support.altered_lines import replace_each

RECOVERED = (*LATE, "federation.blinding.recovery=alone")
ALL, OTHERS = [1, 1, 1, 1], [1, 1, 1, 0]


def to_party(party: str, pass_on: Callable[[Any], list[Any]]) -> Callable[[Any], None]:
    """Replaces each item from the server to a party by others."""
    return lambda cohort: replace_each(cohort[party], pass_on)


def named(places: list[int]) -> Arrived:
    """The parties whose words are said to have arrived in round 2."""
    return Arrived(2, torch.tensor(places, dtype=torch.uint8))


def refused(error: type[Exception], match: str, pass_on: Callable[[Any], list[Any]]) -> list[OpenedShares]:
    """The shares that party1 opens in round 2 before it refuses a server that tells it other things."""
    opened: list[OpenedShares] = []

    def watch(sender: str, _to: str, item: object) -> float:
        mine = sender == "party1" and isinstance(item, OpenedShares) and item.round == 2
        opened.extend([item] if mine else [])  # type: ignore[list-item]
        return 0.0

    with pytest.raises(error, match=match):
        run("fdml", *RECOVERED, delay=watch, on_cohort=to_party("party1", pass_on))
    return opened


def before_the_proofs(*sets: list[int]) -> Callable[[Any], list[Any]]:
    """These sets in round 2, in which everybody has confirmed the set of all."""

    def pass_on(item: Any) -> list[Any]:
        return [*map(named, sets), item] if isinstance(item, SetProofs) and item.round == 2 else [item]

    return pass_on


def test_a_server_that_shows_two_sets_is_refused_before_anything_is_opened() -> None:
    match = "party2 does not confirm that round 2 sums over party1, party2, party3"
    assert refused(SetError, match, before_the_proofs(OTHERS)) == []


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        ([OTHERS, ALL], "a part of the set that was confirmed before, got also party4: both shares would be opened"),
        ([ALL], "expected a smaller set than before, got the same"),
        ([[0, 1, 1, 1]], "expected party1 among them, got it is not"),
        ([[1, 1, 0, 0]], r"expected at least 3 parties, as federation\.quorum and blinding have it, got 2"),
        ([[1, 1, 1]], "expected parties = 4 in dimension 0"),
    ],
    ids=["both shares of party4", "again", "without us", "too few", "of another roster"],
)
def test_a_set_that_would_open_too_much_is_refused(sets: list[list[int]], error: str) -> None:
    assert refused(ContractError, rf"server sent Arrived\.members: .*{error}", before_the_proofs(*sets)) == []


def test_a_server_that_asks_for_the_other_shares_later_is_refused_and_named() -> None:
    """After shares were opened for all, it says that party4 has vanished."""

    def pass_on(item: Any) -> list[Any]:
        return [named(OTHERS), item] if isinstance(item, Aggregate) and item.round == 2 else [item]

    match = r"server sent Arrived\.members: expected one set, .*: both shares of a party would be opened"
    (opened,) = refused(ContractError, match, pass_on)
    assert opened.pads.any(dim=1).all()
