"""Variants of protocols can be stopped after any round and resumed without a difference; a member's state matters."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ContractError
from colonnade.common.run.state import Snapshot, State
from colonnade.testing.differences import of_snapshots
from tests.support.federation import Outcome, config, federate

pytestmark = pytest.mark.slow

PROTOCOLS: dict[str, dict[str, Any]] = {
    "split": {"name": "split", "embedding": 8},
    "split_avg": {"name": "split_avg", "embedding": 8},
    "fedbcd": {"name": "fedbcd", "embedding": 8, "tau": 3},
    "fdml": {"name": "fdml", "embedding": 8},
    "c_vfl": {"name": "c_vfl", "embedding": 8, "local_steps": 3},
    "vafl": {"name": "vafl", "embedding": 8},
    "czofo": {"name": "czofo", "embedding": 8, "arrivals": False},
    "zoo_vfl": {"name": "zoo_vfl", "embedding": 8},
    "syn_zoo_vfl": {"name": "syn_zoo_vfl", "embedding": 8},
    "vfl_afe": {"name": "vfl_afe", "embedding": 8},
    "vimadmm": {"name": "vimadmm", "embedding": 8, "tau": 3},
    "vimadmm_j": {"name": "vimadmm_j", "embedding": 8, "tau": 3},
    "centralized": {"name": "centralized"},
    "linear_admm": {"name": "linear_admm"},
    "fedvs": {"name": "fedvs", "embedding": 8},
    "vfedmh": {"name": "vfedmh", "embedding": 8},
    "agg_vfl": {"name": "agg_vfl", "embedding": 8},
    "local": {"name": "local", "embedding": 8},
    "codes": {"name": "codes", "steps": 20},
    "secureboost": {"name": "secureboost", "gradients": "clear", "depth": 2, "least": 5},
    "additive": {"name": "additive", "gradients": "clear", "aggregate": "clear", "least": 5},
    "hetero_lr": {"name": "hetero_lr", "aggregate": "clear"},
    "scorecard": {"name": "scorecard", "aggregate": "clear", "bins": 8},
}
NOTHING_KEPT = {("fdml", SERVER)}  # that the next round needs
HEADS = {"name": "vimadmm", "embedding": 8, "tau": 3, "head": {"name": "mlp", "hidden": 6, "dropout": 0.25}}
LAST = {"name": "split_avg", "embedding": 8, "combine": "max", "missing": "last"}
LONE = {"name": "c_vfl", "embedding": 8, "local_steps": 3, "head": {"name": "mlp", "hidden": 6, "dropout": 0.25}}
BLIND = {"name": "vimadmm_j", "embedding": 8, "tau": 3, "update": "signal", "aggregate": "blinded"}
CASES = {
    **PROTOCOLS,
    "vimadmm with MLP heads": HEADS,
    "vimadmm_j of blinded sums": BLIND,
    "split_avg of maxima": LAST,
    "c_vfl with an MLP head": LONE,
}
END = 4  # in the second epoch, which has three rounds
SHORT = (f"federation.rounds={END}", "federation.epochs=0", "federation.batch=500", "federation.shuffle=true")


def same(one: Snapshot, two: Snapshot) -> bool:
    """Equality to the last bit."""
    return not of_snapshots(one, two)


@cache
def left_alone(name: str) -> tuple[Config, Outcome]:
    """A run that several tests compare with."""
    cfg = config(CASES[name], *SHORT)
    return cfg, federate(cfg, save=True)


def test_every_protocol_is_here() -> None:
    assert set(PROTOCOLS) == set(CONTRACTS)


@pytest.mark.parametrize("name", sorted(set(CASES) - set(PROTOCOLS)))  # those are in test_conformance.py
def test_a_run_that_is_resumed_after_any_round_ends_as_one_that_was_left_alone(name: str) -> None:
    cfg, alone = left_alone(name)
    assert sorted(alone.saved) == list(range(1, END + 1))
    for round in (1, 3):
        resumed = federate(cfg, save=True, start=(round, alone.saved[round]))
        assert [e["round"] for e in resumed.of_kind("round")] == list(range(round + 1, END + 1))
        assert [e["loss"] for e in resumed.of_kind("round")] == [e["loss"] for e in alone.of_kind("round")][round:]
        for member in (SERVER, *cfg.federation.names):
            assert same(resumed.saved[END][member], alone.saved[END][member])
        assert resumed.server.metrics == alone.server.metrics


def test_parties_with_models_and_optimisers_of_their_own_go_on_too() -> None:
    """A quarter of every image each: statistics of batch norm, squares and moments are all restored."""
    differ = (
        "federation.batch=8",
        "federation.rows={train: 50, validation: 0, test: 20}",
        "every_party.data.split={kind: patches, grid: [2, 2]}",
        "parties.party1={model: lenet, optimiser: {name: adagrad}}",
        "parties.party2={model: resnet18, optimiser: {name: adadelta}}",
        "parties.party3={model: cnn, optimiser: {name: sgd, nesterov: true}}",
        "parties.party4={model: mlp, optimiser: {name: rmsprop, centered: true}}",
    )
    cfg = config(PROTOCOLS["split"], *SHORT, *differ, "federation.rounds=2")
    alone = federate(cfg, save=True)
    resumed = federate(cfg, save=True, start=(1, alone.saved[1]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[2][member], alone.saved[2][member])
        assert not same(alone.saved[1][member], alone.saved[2][member])


@pytest.mark.parametrize("member", [SERVER, "party2"])
@pytest.mark.parametrize(
    "name", ["split", "fdml", "vafl", "czofo", "fedvs", "vfedmh", *sorted(set(CASES) - set(PROTOCOLS))]
)
def test_a_members_kept_state_matters(name: str, member: str) -> None:
    """Shows that the test above can fail: a member that begins anew while the others resume ends differently."""
    if (name, member) in NOTHING_KEPT:
        pytest.skip("nothing to forget")
    cfg, alone = left_alone(name)
    forgetful = {key: value for key, value in alone.saved[3].items() if key != member}
    try:
        resumed = federate(cfg, save=True, start=(3, forgetful))
    except ContractError as refused:  # masks are bound to what it was told
        assert "masks that cancel" in str(refused)
    else:
        assert not same(resumed.saved[END][member], alone.saved[END][member])


def test_noise_from_a_seed_and_roundings_go_on_too() -> None:
    """Bit by bit, and no release is counted twice."""
    private = (
        "federation.privacy={clip: 1, noise_multiplier: 10, seeded: true}",
        "federation.compress={up: 4, down: 8}",
    )
    cfg = config(PROTOCOLS["vimadmm"], *SHORT, *private)
    alone = federate(cfg, save=True)
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[END][member], alone.saved[END][member])
    assert resumed.privacy["party1"].releases == alone.privacy["party1"].releases > END


def test_with_stragglers_the_same_happens_again_on_the_virtual_clock() -> None:
    protocol = PROTOCOLS["vimadmm"]
    slow = ("parties.party3.chaos.delay=exp(2s)", "federation.quorum.deadline=1")
    cfg = config(protocol, *SHORT, *slow)
    alone = federate(cfg, save=True)
    assert alone.of_kind("missing")
    again = federate(cfg, save=True)
    assert all(same(alone.saved[END][name], again.saved[END][name]) for name in alone.saved[END])


def test_a_saved_state_is_not_shared_with_the_continuing_run() -> None:
    cfg = config(PROTOCOLS["split"], *SHORT)
    alone = federate(cfg, save=True)
    before = State(alone.saved[3]["party1"]).capture()
    federate(cfg, start=(3, alone.saved[3]))
    assert before == replace(State(alone.saved[3]["party1"]).capture())


@pytest.mark.parametrize("rule", ["released", "paper"])
def test_factors_clusters_and_counts_of_rows_go_on_too(rule: str) -> None:
    private = (
        "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 0.2, delta: 1e-4, seeded: true, "
        f"rescale: {rule}}}",
        "federation.adjust={contrastive: 0.1, confidence: 0.2, normality: 0.01}",
    )
    cfg = config(PROTOCOLS["vfl_afe"], *SHORT, *private)
    alone = federate(cfg, save=True)
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[END][member], alone.saved[END][member])
    assert resumed.privacy["party2"].releases == alone.privacy["party2"].releases > 1
