"""VFL-AFE, and its release under other protocols: on the wire, in the ledger, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.training.context import refuse_mixing
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.message import tensors
from colonnade.common.privacy.accounting.accountant import epsilon, gaussian_epsilon
from colonnade.common.protocols.split import Embedding, Gradient
from colonnade.server.member.summary import protection
from tests.support.federation import Outcome, config, federate, parameters

pytestmark = pytest.mark.slow

AFE = {"name": "vfl_afe", "embedding": 16}
PRIVACY = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: %s, delta: 1e-4, seeded: true, %s}"
SHORT = ("federation.rounds=8", "federation.epochs=0")
ABLE = [name for name, contract in CONTRACTS.items() if contract.exchange.embeddings]


def private(sigma: float = 0.05, more: str = "") -> str:
    return PRIVACY % (sigma, more)


def run(*sets: str, protocol: dict[str, Any] = AFE, **how) -> Outcome:
    return federate(config(protocol, *SHORT, *sets), **how)


def test_it_takes_the_steps_of_one_joint_model_with_noise_at_the_cut() -> None:
    """Autograd through models, regions and the same noise; losses as they were recorded."""
    outcome = run(private(0.1, "release: sphere"))
    fresh = federate(config(AFE, private(0.1, "release: sphere"), *SHORT, "federation.rounds=1"))
    assert fresh.of_kind("round")[0]["loss"] == outcome.of_kind("round")[0]["loss"]
    sent = {(m.round, sender): m.h for sender, _, m in outcome.messages if isinstance(m, Embedding)}
    back = {(m.round, to): m.dh for _, to, m in outcome.messages if isinstance(m, Gradient)}
    names, head = list(outcome.clients), outcome.server.state["head"]
    last = outcome.server.schedule.rounds
    # The head has stepped since; its response of the last round depends only on the noisy embeddings.
    rows = outcome.server.schedule.batch(last)
    joined = torch.cat([sent[last, name] for name in names], 1).requires_grad_()
    functional.cross_entropy(head(joined), outcome.server.labels[rows]).backward()
    assert {tuple(back[last, name].shape) for name in names} == {(len(rows), 16)}
    directions = torch.cat([back[last, name] for name in names], 1)
    assert functional.cosine_similarity(joined.grad.flatten(), directions.flatten(), dim=0) > 0.9


@pytest.mark.parametrize("name", ABLE)
def test_noise_on_the_wire_is_that_of_the_configuration_in_every_protocol(name: str) -> None:
    """Models that hardly move: two runs with the same seed and other noise differ by noise alone."""
    protocol = {"name": name, "embedding": 16}
    if "arrivals" in CONTRACTS[name].config.model_fields:
        protocol["arrivals"] = False
    if name in ("split_avg", "vfedmh"):
        protocol["aggregate"] = "clear"
    still = ("every_party.optimiser.lr=1e-9", "federation.rounds=6", "federation.evaluate.every=1")
    sets = private(3.0).replace("seeded: true", "seeded: false")
    one, two = (run(sets, *still, protocol=protocol) for _ in range(2))
    differences = [
        (tensors(m)[field] - tensors(n)[field]).flatten()
        for (_, to, m), (_, _, n) in zip(one.messages, two.messages, strict=True)
        for field in {"h", "e"} & set(tensors(m))
        if to == SERVER
    ]
    noise = torch.cat(differences).double()
    assert len(noise) > 75_000
    assert float(noise.std()) / 2**0.5 == pytest.approx(2 * 3.0 * 1, rel=0.015)  # nearly 6 deviations


def test_noise_without_a_seed_is_never_the_same() -> None:
    one, two = (run(private().replace("true", "false")) for _ in range(2))
    first = [next(m.h for _, _, m in outcome.messages if isinstance(m, Embedding)) for outcome in (one, two)]
    assert not torch.equal(*first) and float((first[0] - first[1]).abs().median()) > 0.01


def test_the_report_counts_a_rows_releases_over_the_whole_run() -> None:
    """Eight rounds of five in an epoch: two releases of a training row; validation after each epoch and at the end."""
    outcome = run(private(0.5).replace("seeded: true", "seeded: false"))
    report = protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()})
    counted = report["privacy"]["releases"]["party1"]
    assert counted == outcome.server.schedule.privacy.releases == 2
    counted = report["privacy"]["epsilon"]["row"]["party1"]
    assert counted == pytest.approx(epsilon(2, 0.5, 1e-4, "row"), abs=1e-6) and report["epsilon"]["party1"] is None
    assert report["privacy"]["release_epsilon"] == pytest.approx(gaussian_epsilon(0.5, 1e-4), abs=1e-6)
    assert "without federation.privacy.steps" in report["privacy"]["void"] and report["privacy"]["deviation"] == 1.0


def test_the_papers_factor_has_no_epsilon_in_the_report() -> None:
    outcome = run(private(0.5, "rescale: paper").replace("seeded: true", "seeded: false"))
    report = protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()})
    assert set(report["epsilon"].values()) == {None} and "heuristic" in report["privacy"]["void"]


def test_a_budget_over_the_run_finds_the_noise_and_ends_it() -> None:
    found = config(AFE, "federation.epochs=6", private().replace("noise_multiplier: 0.05", "epsilon: 20"))
    plan = Schedule(found.federation, 1797, 0).privacy
    assert plan.releases == 6 and plan.epsilon(6) <= 20 < epsilon(6, plan.noise_multiplier * 0.99, 1e-4, "row")
    short = config(AFE, "federation.epochs=6", private(0.5, "epsilon: 12"))
    paid = Schedule(short.federation, 1797, 0)
    assert paid.rounds < 30 and paid.privacy.epsilon(paid.privacy.releases) <= 12
    outcome = federate(short)
    assert outcome.of_kind("round")[-1]["round"] == paid.rounds


def test_the_epsilon_of_a_release_finds_the_noise() -> None:
    cfg = config(AFE, *SHORT, private().replace("noise_multiplier: 0.05", "release_epsilon: 4"))
    plan = Schedule(cfg.federation, 1797, 0).privacy
    assert gaussian_epsilon(plan.noise_multiplier, 1e-4) == pytest.approx(4, rel=1e-6)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((private().replace("clip: 1", "clip: 0"),), r"federation.privacy.clip = 0: expected more than 0"),
        ((private().replace("clip: 1", "clip: -2"),), r"clip = -2: expected more than 0"),
        ((private().replace("adaptive", "adaptiv"),), r"mechanism = 'adaptiv': .*did you mean 'adaptive'"),
        ((private().replace("delta: 1e-4,", ""),), r"privacy.*delta"),
        ((private().replace("noise_multiplier: 0.05", "epsilon: 8").replace("delta: 1e-4,", ""),), r"privacy.*delta"),
        ((private().replace("noise_multiplier: 0.05,", ""),), r"none of noise_multiplier, release_epsilon and epsilon"),
        ((private(0.05, "release_epsilon: 3"),), r"both noise_multiplier and release_epsilon"),
        ((private(0),), r"noise_multiplier = 0: without noise"),
        ((private(0.05, "release: cube"),), r"release"),
        ((private(0.05, "release: sphere, rescale: released"),), r"rescale = released with release = sphere"),
        ((private(0.05, "shrink: true"),), r"shrink: it belongs to rescale: paper"),
        ((private(0.05, "rescale: paper"), "federation.batch=1"), r"batch = 1 with federation.privacy.rescale = paper"),
        (("federation.adjust={contrastive: 1, confidence: 0}",), r"adjust.confidence = 0: expected more than 0"),
        (("federation.adjust={contrastive: 1, confidence: 1}",), r"adjust.confidence = 1: expected less than 1"),
        (
            ("federation.adjust={contrastive: 1}", "federation.batch=9"),
            r"batch = 9 .*10 classes are more than its",
        ),
        (("federation.adjust={contrastive: 1}", "federation.batch=1"), r"one row has no distances and no clusters"),
        (("federation.adjust={normality: 1}", "federation.batch=1"), r"one row has no distances"),
        ((private(0.05, "steps: {clip: 0}"),), r"steps.clip = 0: expected more than 0"),
        ((private(0.05, "steps: {clip: 1, cost: 0}"),), r"steps.cost = 0: expected more than 0"),
        ((private(0.05, "steps: {clip: 1}, rescale: paper"),), r"steps: it proves nothing beside rescale = paper"),
        ((private(0.05, "steps: {clip: 1}"), "federation.adjust={normality: 1}"), r"steps with federation.adjust"),
        (("federation.privacy=5",), r"federation.privacy = 5: expected keys and values"),
        (("federation.privacy=null",), r"vfl_afe protects every row, and needs mechanism: adaptive"),
        (("federation.privacy={clip: 1, noise_multiplier: 1}",), r"vfl_afe protects every row"),
    ],
)
def test_settings_without_meaning_are_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(AFE, *SHORT, *sets)


def test_delta_above_one_in_as_many_as_there_are_rows_needs_a_benchmark() -> None:
    loose = private().replace("1e-4", "1e-2")
    with pytest.raises(ConfigError, match=r"delta = 0.01: with 1797 rows it must be below"):
        Schedule(config(AFE, *SHORT, loose).federation, 1797, 0)
    assert Schedule(config(AFE, *SHORT, loose, "federation.benchmark=true").federation, 1797, 0).privacy is not None


@pytest.mark.parametrize("name", [name for name in CONTRACTS if name not in ABLE])
def test_outputs_other_than_one_embedding_per_row_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.privacy"):
        config({"name": name}, *SHORT, private())


def test_terms_of_its_own_need_a_gradient_to_add_them_to() -> None:
    with pytest.raises(ConfigError, match=r"federation.adjust with the protocol fdml"):
        config({"name": "fdml", "embedding": 8}, *SHORT, "federation.adjust={normality: 1}")


def test_a_model_that_mixes_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="normalises over batches"):
        refuse_mixing("parties.a", nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    refuse_mixing("parties.a", nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))


@pytest.mark.parametrize(
    ("policy", "sets", "said"),
    [
        ({"max_epsilon": 50}, private(0.5), r"max_epsilon = 50.*mechanism = adaptive, whose epsilon is one row's"),
        (
            {"max_row_epsilon": 1, "row_epsilon_without_steps": "accept"},
            private(0.5),
            r"max_row_epsilon = 1.*2 releases at sigma = 0.5.*two values of a row",
        ),
        ({"max_row_epsilon": 50}, private(0.5, "rescale: paper"), r"max_row_epsilon = 50.*a heuristic without a proof"),
        ({"max_row_epsilon": 50}, "federation.adjust={normality: 1}", r"no federation.privacy"),
        ({"max_row_epsilon": 50, "max_delta": 1e-6}, private(0.5, "steps: {clip: 1}"), r"max_delta"),
    ],
)
def test_a_policy_refuses_weaker_settings(policy: dict[str, Any], sets: str, said: str) -> None:
    cfg = config({"name": "split", "embedding": 16}, *SHORT, sets.replace("seeded: true", "seeded: false"))
    plan = Schedule(cfg.federation, 1797, 0).privacy
    with pytest.raises(ConfigError, match=said):
        Privacy("party1", cfg.federation, PolicyConfig(**{"max_delta": 0.1} | policy), plan, None)


def test_client_level_privacy_is_enough_for_a_policy_about_rows() -> None:
    cfg = config({"name": "split"}, *SHORT, "federation.privacy={clip: 1, noise_multiplier: 20}")
    plan = Schedule(cfg.federation, 1797, 0).privacy
    Privacy("party1", cfg.federation, PolicyConfig(max_row_epsilon=8), plan, None)
    with pytest.raises(ConfigError, match="max_row_epsilon"):
        Privacy("party1", cfg.federation, PolicyConfig(max_row_epsilon=0.01), plan, None)


def test_steps_with_noise_are_counted_in_releases() -> None:
    """Eight rounds of five in an epoch: two releases of a row and two steps at half a release each."""
    sets = private(0.5, "steps: {clip: 1, cost: 0.5}").replace("seeded: true", "seeded: false")
    outcome = run(sets)
    report = protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()})
    assert report["privacy"]["releases"]["party1"] == 3 and "training" in report["privacy"]["about"]
    assert report["epsilon"]["party1"] == pytest.approx(epsilon(3, 0.5, 1e-4, "row"), abs=1e-6)


@pytest.mark.parametrize(
    "protocol",
    [
        {"name": "vimadmm", "embedding": 16, "tau": 3},
        {"name": "fedbcd", "embedding": 16, "tau": 3},
        {"name": "c_vfl", "embedding": 16, "local_steps": 3},
        {"name": "vafl", "embedding": 16},
        {"name": "czofo", "embedding": 16, "arrivals": False},
    ],
    ids=lambda protocol: protocol["name"],
)
def test_local_steps_are_paid_for_in_every_protocol(protocol: dict[str, Any]) -> None:
    each = 3 if protocol["name"] in ("vimadmm", "fedbcd", "c_vfl") else 1
    outcome = run(private(0.5, "steps: {clip: 1, cost: 0.5}"), protocol=protocol)
    assert outcome.server.schedule.privacy.releases == 2 + each
    before, after = (parameters(outcome) for outcome in (run(private(0.5), protocol=protocol), outcome))
    assert not torch.equal(before["party1"], after["party1"])
