"""What came from a party costs at least what the server counts, and never more than the party has paid."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.split import Embedding
from colonnade.server.member.spending import Spending
from colonnade.simulation.federation import Simulation
from tests.support.false_party import DIGITS
from tests.support.federation import tree

GAUSSIAN = {"clip": 1, "noise_multiplier": 2}
ROWS = {"mechanism": "adaptive", "clip": 1, "noise_multiplier": 2, "delta": 1e-5, "steps": {"clip": 1, "cost": 0.7}}


@pytest.mark.parametrize(
    ("protocol", "privacy"),
    [
        ({"name": "split", "embedding": 4}, GAUSSIAN),
        ({"name": "split", "embedding": 4}, {**GAUSSIAN, "evaluate": "none"}),
        ({"name": "split", "embedding": 4}, ROWS),
        ({"name": "split_avg", "embedding": 4, "aggregate": "blinded"}, {**GAUSSIAN, "once": {"colluders": 1}}),
        ({"name": "split_avg", "embedding": 4, "aggregate": "blinded"}, ROWS),
        ({"name": "vafl", "embedding": 4}, GAUSSIAN),
        ({"name": "fdml"}, GAUSSIAN),
    ],
)
def test_it_is_what_the_party_paid(protocol: dict[str, Any], privacy: dict[str, Any]) -> None:
    made = tree(protocol, rounds=5, epochs=0, batch=512, privacy=privacy, benchmark=True)
    outcome = Simulation(parse(made), record=True).run()
    spending = Spending(outcome.server.schedule)
    for party, _, message in outcome.messages:
        if party in outcome.clients:
            spending.receive(party, message)
    for party, spent in outcome.privacy.items():
        least = spending.least(party)
        assert 0 < least == spent.releases and not spending.state(party, least)
        assert spending.state(party, least - 1) == f"it stated {least - 1} releases, and {least} have come from it"


def test_what_came_counts_where_a_party_has_not_stated_its_newest_releases() -> None:
    made = tree({"name": "split", "embedding": 4}, rounds=5, epochs=0, privacy=GAUSSIAN)
    spending = Spending(Schedule(parse(made).federation, DIGITS, 0))
    spending.state("party1", 0)
    for number in range(1, 4):
        spending.receive("party1", Embedding(number, torch.zeros(64, 4)))
        spending.receive("party2", Embedding(number, torch.zeros(64, 4)))
    assert spending.counts == {"party1": 3}  # and of a party that states nothing no number is known


def test_what_was_stated_before_the_rows_were_known_is_compared_with_the_plan_then() -> None:
    spending = Spending()
    assert not spending.state("party1", 1000) and not spending.state("party2", 0)
    made = tree({"name": "split", "embedding": 4}, rounds=5, epochs=0, privacy={"clip": 1, "epsilon": 8})
    assert list(spending.confirm(Schedule(parse(made).federation, DIGITS, 0))) == ["party1"]
    made = tree({"name": "split", "embedding": 4}, rounds=5, epochs=0, privacy=GAUSSIAN)
    assert Spending(Schedule(parse(made).federation, DIGITS, 0)).state("party1", 1e8).startswith("it stated 1e+08 rel")
