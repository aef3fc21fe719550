"""A party that states whatever the server wants each receiver to read: two honest parties still find the difference.

Bounds: transcripts (server, both).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Item, Statement
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.protocols.vimadmm import Update
from tests.adversaries.server.test_split_views import PROTOCOLS, ROUNDS
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

COLLUDER, VICTIM = "party1", "party2"
LIED = 5


def doubled(item: Item) -> Item:
    return replace(item, dual=item.dual * 2) if isinstance(item, Update) and item.round == LIED else item


def run(at: Callable[[str, Item], Item]) -> None:
    """`at` makes what each party receives."""

    def alter(cohort: Cohort) -> None:
        for name, link in cohort.items():
            change_each(link, partial(at, name))

    federate(config(PROTOCOLS["clear"], *ROUNDS), on_cohort=alter)


@cache
def truths() -> dict[int, bytes]:
    """The colluder's statements in a run without a lie, by number."""
    found: dict[int, bytes] = {}

    def note(_name: str, item: Item) -> Item:
        if isinstance(item, Statement) and item.party == COLLUDER:
            found[json.loads(item.body)["number"]] = item.body
        return item

    run(note)
    return found


@pytest.mark.parametrize("told", [(VICTIM,), (VICTIM, COLLUDER)], ids=["told the truth", "told the lie"])
def test_two_honest_parties_find_it_whatever_a_third_states(told: tuple[str, ...]) -> None:
    """Parties that were told the truth read the truth; the victim reads what it would state itself."""
    victims: dict[int, bytes] = {}

    def at(name: str, item: Item) -> Item:
        if isinstance(item, Statement):
            number = json.loads(item.body)["number"]
            if item.party == VICTIM:
                victims[number] = item.body
            if item.party == COLLUDER:
                body = victims.get(number, item.body) if name == VICTIM else truths().get(number, item.body)
                return replace(item, body=body)
        return doubled(item) if name in told else item

    with pytest.raises(TranscriptError, match=f"round {LIED}: .* was told another Update than we were") as found:
        run(at)
    assert found.value.other in {VICTIM, "party3", "party4"}


def test_a_lie_that_all_are_told_is_not_found() -> None:
    """As the page says: no transcript differs."""
    run(lambda _name, item: doubled(item))
