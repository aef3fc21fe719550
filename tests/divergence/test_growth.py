"""Growth of norms and of the loss, told apart from noise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.contracts.embeddings import Embedding
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.state import State
from colonnade.server.training.watch import GrowthWatch, LossGrowth, NormGrowth


def norms(*values: float) -> NormGrowth:
    growth = NormGrowth({})
    for round, value in enumerate(values, 1):
        growth.add(round, value)
    return growth


def losses(*values: float) -> LossGrowth:
    growth = LossGrowth({})
    for round, value in enumerate(values, 1):
        growth.add(round, value)
    return growth


@pytest.mark.parametrize("rate", [1.3, 2.0, 10.0])
def test_exponential_growth_is_found_with_its_first_round(rate: float) -> None:
    growth = norms(*[1.0] * 20, *(rate**step for step in range(1, 40)))
    assert growth.exploded and 20 < growth.since <= 20 + math.ceil(math.log(10) / math.log(rate))


def test_one_jump_is_enough_and_a_return_ends_it() -> None:
    growth = norms(1.0, 1.1, 500.0)
    assert growth.since == 3 and growth.exploded
    growth.add(4, 1.0)
    assert not growth.since and growth.last == (3, 500.0)
    for round in range(5, 40):
        growth.add(round, 1.0)
    assert growth.last == (0, 1.0)


def test_slow_growth_by_a_factor_of_a_thousand_is_none() -> None:
    assert not any(norms(*(1.05**step for step in range(count))).exploded for count in range(1, 145))


@given(st.lists(st.floats(0.2, 1.9), min_size=1, max_size=60))
def test_noise_is_no_growth(values: list[float]) -> None:
    assert not norms(*values).since


def test_a_value_that_begins_with_zeros_has_its_first_size_as_the_usual_one() -> None:
    assert not norms(0, 0, 0, 5.0, 6.0, 7.0).since


def test_a_rising_loss_is_found_and_two_bad_batches_of_five_are_not() -> None:
    learned = [2.3 * 0.9**step + 0.1 for step in range(40)]
    assert losses(*learned, 9.0, 12.0, 20.0).rounds == 1
    assert losses(*learned, 9.0, 12.0, 20.0).since == 41
    assert not losses(*learned, 900.0, 0.1, 900.0, 0.1, 0.1).since


def test_a_loss_that_stays_where_it_is_grows_no_more() -> None:
    growth = losses(2.3, *[0.1] * 10, *[50.0] * 70)
    assert not growth.since and not growth.rounds


@given(st.lists(st.floats(-0.4, 0.4), min_size=5, max_size=80), st.sampled_from([-5.0, 0.7, 2.3, 300.0]))
def test_noise_of_four_tenths_of_any_loss_is_no_growth(noise: list[float], level: float) -> None:
    growth = losses(level, *(level * (1 + each) for each in noise))
    assert not growth.rounds


def test_a_restored_loss_goes_on_as_if_it_had_not_stopped() -> None:
    kept: dict[str, Any] = {}
    first, values = LossGrowth(kept), [2.3, 1.0, 0.5, 0.2, 0.1, 0.1, 30.0, 40.0]
    for round, loss in enumerate(values, 1):
        first.add(round, loss)
    second = LossGrowth({**kept, "recent": list(kept["recent"])})
    first.add(9, 50.0)
    second.add(9, 50.0)
    assert (first.since, first.rounds, first.now) == (second.since, second.rounds, second.now) == (7, 1, 30.0)


def embedding(round: int, size: float) -> Embedding:
    return Embedding(round=round, h=torch.full((4, 2), size))


def test_a_watch_that_is_resumed_names_the_party_that_it_warned_of_before() -> None:
    """The state of round 30 goes to another process: it neither warns again nor blames whoever shows it first."""
    events: list[Event] = []
    watch, state = GrowthWatch(Telemetry(None, events.append)), State()
    watch.begin(state)
    for round in range(1, 31):
        watch.received("party1", embedding(round, 1.0))
        watch.received("party2", embedding(round, 1.0 if round <= 20 else 2.0 ** (round - 20)))
        watch.round(round, 1.0)
    resumed = GrowthWatch(Telemetry(None, events.append))
    resumed.begin(State(state.capture()), 30)
    assert resumed.growing
    resumed.received("party1", embedding(31, 1.0))
    resumed.received("party2", embedding(31, 2.0**11))
    resumed.round(31, 1.0)
    assert [event["party"] for event in events if "grows" in event] == ["party2"]
    diverged = resumed.blame_loss(float("inf"))
    assert diverged.member == "party2" and "since round 24" in str(diverged)
