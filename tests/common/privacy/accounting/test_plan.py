"""The privacy cost of a configuration, and refusals with their reasons."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.config.privacy import PrivacyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.accounting.plan import Span
from colonnade.common.privacy.gaussian import GaussianPlan
from tests.support.federation import config, federate

SPLIT = {"name": "split", "embedding": 4}
PRIVATE = ("federation.privacy.clip=1", "federation.privacy.noise_multiplier=30")

BUDGET = ("federation.privacy.clip=1", "federation.privacy.epsilon=8")


def releases(rounds: int) -> int:
    """One a round, and ten at the end."""
    return rounds + 10


def test_a_budget_alone_finds_sigma() -> None:
    found = GaussianPlan.of(PrivacyConfig(clip=1, epsilon=8), Span(1000, 50, releases))
    assert found.rounds == 50 and found.releases == 60
    assert epsilon(60, found.noise_multiplier, 1e-5, "replace") <= 8
    assert found.affordable is not None and 60 <= found.affordable <= 61


def test_a_budget_for_fewer_rounds_ends_the_run_there() -> None:
    found = GaussianPlan.of(PrivacyConfig(clip=1, epsilon=8, rounds=20), Span(1000, 50, releases))
    assert found.rounds == 20 and found.releases == 30


def test_with_sigma_given_the_budget_ends_the_run() -> None:
    config = PrivacyConfig(clip=1, epsilon=1, noise_multiplier=30, adjacency="participation", accounting="renyi")
    found = GaussianPlan.of(config, Span(1000, 100, releases))
    assert found.affordable == 54 and found.releases == 54 and found.rounds == 44


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"noise_multiplier": 0, "epsilon": 8}, r"noise_multiplier = 0: without noise no epsilon is finite"),
        ({"noise_multiplier": 0}, r"noise_multiplier = 0: without noise"),
        ({}, "neither noise_multiplier nor epsilon"),
        ({"epsilon": 8, "delta": 0.001}, r"delta = 0.001: with 1000 rows it must be below 1/1000 = 0.001"),
        ({"epsilon": 1, "noise_multiplier": 1}, r"epsilon = 1: at noise_multiplier = 1 it pays for 0 releases"),
        ({"epsilon": 1e-9, "delta": 1e-12}, r"epsilon = 1e-09: impossible for 60 releases"),
    ],
)
def test_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GaussianPlan.of(PrivacyConfig(clip=1, **settings), Span(1000, 50, releases))


@pytest.mark.parametrize("rounds", [1, 5, 6, 13])
def test_a_schedule_foretells_every_release(rounds: int) -> None:
    """Counted on the messages of a run: training, validation and test alike."""
    cfg = config(SPLIT, "federation.epochs=0", f"federation.rounds={rounds}", "federation.evaluate.every=6", *PRIVATE,
                 "federation.privacy.delta=1e-6")  # fmt: skip
    outcome = federate(cfg)
    foretold = outcome.server.schedule.privacy
    assert foretold is not None
    sent = sum(sender == "party1" for sender, _, _ in outcome.messages)
    assert foretold.releases == sent == outcome.privacy["party1"].releases


def test_a_schedule_ends_where_the_budget_does() -> None:
    cfg = config(SPLIT, "federation.epochs=50", *PRIVATE, "federation.privacy.epsilon=1")
    schedule = Schedule(cfg.federation, 1797, 0)
    assert schedule.privacy is not None
    assert schedule.rounds == schedule.privacy.rounds < 300
    assert schedule.evaluations(schedule.rounds) == ("validation", "test")
    assert schedule.privacy.releases <= 54


@pytest.mark.parametrize("more", [{}, {"noise_multiplier": 12.0}])
def test_releases_for_predictions_are_kept_back_from_training(more: dict[str, Any]) -> None:
    """All of them together are within the budget, and training leaves as many as were asked for."""
    without, kept = (
        GaussianPlan.of(PrivacyConfig(clip=1.0, epsilon=4.0, predictions=n, **more), Span(1000, 50, releases))
        for n in (0, 10)
    )
    assert kept.most == kept.releases + 10 and kept.affordable is not None
    assert kept.releases + 10 <= kept.affordable and kept.epsilon(kept.most) <= 4.0
    assert kept.noise_multiplier > without.noise_multiplier or kept.rounds < without.rounds
    assert not kept.spent_by_training


def test_nothing_is_kept_of_no_budget() -> None:
    with pytest.raises(ConfigError, match="predictions = 3: without epsilon"):
        PrivacyConfig(clip=1.0, noise_multiplier=2.0, predictions=3)
    for evaluate in ("clean", "none"):  # predictions are then unpaid
        with pytest.raises(ConfigError, match=f"with evaluate = {evaluate} predictions are no releases"):
            PrivacyConfig(clip=1.0, epsilon=4.0, predictions=3, evaluate=evaluate)


def test_a_run_that_is_older_than_the_key_has_the_same_hashes() -> None:
    old, new = config(SPLIT, *BUDGET), config(SPLIT, *BUDGET, "federation.privacy.predictions=2")
    assert "privacy.predictions" not in old.federation.hashes() and "privacy.predictions" in new.federation.hashes()
