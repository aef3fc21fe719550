"""A federation that names no adjacency gets the weaker one, which hides participation although the roster is public.

Bounds: no cell.
"""

from __future__ import annotations

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.server.member.summary import protection
from tests.support.federation import config, federate

SPLIT = {"name": "split", "embedding": 8}
PRIVATE = "federation.privacy={clip: 1, epsilon: 8, delta: 1e-5}"
SHORT = ("federation.rounds=3", "federation.epochs=0")


def test_a_budget_is_for_replaced_data_by_default() -> None:
    federation = config(SPLIT, *SHORT, PRIVATE).federation
    plan = Schedule(federation, 1797, 0).privacy
    assert plan is not None and federation.privacy.adjacency == "replace"
    assert 7.9 < epsilon(plan.releases, plan.noise_multiplier, 1e-5, "replace") <= 8


def test_the_headline_is_about_other_data() -> None:
    outcome = federate(config(SPLIT, *SHORT, PRIVATE))
    said = protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()})
    assert said["epsilon"] == said["privacy"]["epsilon"]["replace"]
