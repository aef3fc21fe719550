"""Syn-ZOO-VFL against the box, replayed in double precision, and the values of its section."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from colonnade.common.contracts.pairs import Pair
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, TrainingDiverged
from tests.support.federation import Outcome, config, federate, late, parameters
from tests.support.pairs import SETS, WIDTH, Replica

pytestmark = pytest.mark.slow

SYN = {"name": "syn_zoo_vfl", "embedding": WIDTH, "mu": 0.01}
both = pytest.mark.parametrize("name", ["zoo_vfl", "syn_zoo_vfl"])


def run(*sets: str, **how) -> Outcome:
    return federate(config(SYN, *SETS, *sets), **how)


@pytest.mark.parametrize("draw", ["sphere", "normal"])
def test_every_round_is_that_of_the_box(draw: str) -> None:
    outcome = run(f"federation.protocol.draw={draw}")
    replica = Replica(outcome, draw, mu=0.01)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        pairs = {name: replica.pair(name, rows) for name in replica.names}
        loss = replica.turn(replica.names, {name: h for name, (_, h, _) in pairs.items()}, pairs, rows)
        assert abs(loss - event["loss"]) < 1e-4
    replica.assert_ends_as(partial(torch.allclose, atol=1e-3))


def test_few_bits_on_the_way_down_change_nothing_for_a_single_number() -> None:
    """One number is the end of its own scale."""
    whole, one_bit = run(), run("federation.compress.down=1")
    assert all(torch.equal(values, parameters(one_bit)[name]) for name, values in parameters(whole).items())
    half = run("federation.compress.down=16")
    assert all(torch.allclose(values, parameters(half)[name], atol=1e-2) for name, values in parameters(whole).items())


def test_a_missing_party_counts_as_zeros_and_is_sent_nothing() -> None:
    lost = late("party4")
    outcome = run("federation.quorum={need: 3}", "federation.rounds=1", delay=lost)
    assert [to for sender, to, _ in outcome.messages if sender == SERVER] == ["party1", "party2", "party3"]
    zeros = {"party4": torch.zeros(256, WIDTH).double()}
    replica, rows = Replica(outcome, "sphere", mu=0.01), outcome.server.schedule.batch(1)
    pairs = {name: replica.pair(name, rows) for name in replica.names[:3]}
    loss = replica.turn(replica.names[:3], zeros | {name: h for name, (_, h, _) in pairs.items()}, pairs, rows)
    assert abs(loss - outcome.of_kind("round")[0]["loss"]) < 1e-4


def test_a_round_that_lacks_a_party_can_be_skipped() -> None:
    slow = late("party2", Pair, seconds=5.0, rounds=(1,), others=0.5)
    sets = ("federation.quorum={need: 3, grace: 0.2}", "federation.rounds=24", "federation.protocol.missing=skip")
    outcome = run(*sets, delay=slow)
    skipped = [event["round"] for event in outcome.of_kind("skipped")]
    assert skipped and skipped[0] == 1 and max(skipped) < 24 and outcome.late["party2"] >= 1


@both
def test_a_run_with_too_large_rates_reports_it(name: str) -> None:
    with pytest.raises(TrainingDiverged, match=r"its head is not finite|the loss is (nan|inf)") as refused:
        federate(config({"name": name}, "server.optimiser.lr=1e38"))
    assert "server.optimiser.lr" in str(refused.value.hint)


@both
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mu", "0"),
        ("mu", "-0.1"),
        ("mu", ".nan"),
        ("mu", ".inf"),
        ("embedding", "0"),
        ("draw", "cube"),
        ("combine", "sum"),
    ],
)
def test_a_key_that_makes_no_sense_is_named(name: str, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"federation\.protocol\.{key}"):
        config({"name": name}, f"federation.protocol.{key}={value}")


@both
def test_noise_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"federation.privacy with the protocol {name}: two embeddings"):
        config({"name": name}, "federation.privacy={clip: 1, noise_multiplier: 1}")


def test_asynchronously_there_is_no_choice_of_imputation() -> None:
    assert "missing" not in CONTRACTS["zoo_vfl"].config.model_fields
    with pytest.raises(ConfigError, match=r"federation\.protocol\.missing"):
        config({"name": "zoo_vfl"}, "federation.protocol.missing=skip")
