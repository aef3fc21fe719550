"""A party's privacy in a run: releases, costs, refusals of its policy, and state over restarts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.privacy.mechanisms import Privacy, refuse_longer
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import PARTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import BudgetSpent, CheckpointError, ConfigError
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.run.state import Snapshot, State
from colonnade.server.member.summary import protection
from tests.support.federation import config, federate, parameters

VIMADMM = {"name": "vimadmm", "embedding": 8, "tau": 2}
PRIVATE = ("federation.privacy.clip=0.5", "federation.privacy.noise_multiplier=20")
SHORT = ("federation.epochs=0", "federation.rounds=3", "federation.batch=200")


def private(*sets: str) -> Any:
    return config(VIMADMM, *SHORT, *PRIVATE, *sets)


def privacy(policy: PolicyConfig, *sets: str, ledger: Path | None = None) -> Privacy:
    cfg = private(*sets)
    schedule = Schedule(cfg.federation, 1797, 0)
    return Privacy("party1", cfg.federation, policy, schedule.privacy, ledger)


def test_sent_embeddings_carry_the_configured_noise() -> None:
    """Captured messages of two runs with equal noise-free parts: a few hundred thousand entries of pure noise."""
    outcome = federate(private("federation.rounds=8", "federation.protocol.embedding=64"))
    sent = [m.h for sender, _, m in outcome.messages if sender != "server"]
    noise = torch.cat([h.flatten() for h in sent]).double()
    # A matrix clipped to C adds at most C^2 to the sum of squares, C^2 / (200 x 64) an entry.
    assert noise.numel() > 500_000
    assert noise.square().mean().item() == pytest.approx((20 * 0.5) ** 2, rel=0.01)


def test_noise_is_fresh_in_every_run_and_every_party() -> None:
    one, two = (federate(private("federation.rounds=1")) for _ in range(2))
    first = {(o, s): m.h for o, run in enumerate((one, two)) for s, _, m in run.messages if hasattr(m, "h")}
    values = list(first.values())
    assert len(values) == 8
    for place, h in enumerate(values):
        assert not any(torch.equal(h, other) for other in values[:place])


def test_seeded_noise_repeats_and_parties_draw_different_numbers() -> None:
    one, two = (federate(private("federation.privacy.seeded=true")) for _ in range(2))
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])
    first = [m.h for sender, _, m in one.messages[:8] if sender != "server"]
    assert not torch.equal(first[0], first[1])
    assert protection(one.server, dict.fromkeys(one.clients, 9))["epsilon"]["party1"] is None


def test_the_report_reconciles_with_the_messages_that_left() -> None:
    outcome = federate(private())
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    sent = {name: sum(sender == name for sender, _, _ in outcome.messages) for name in counts}
    assert counts == sent
    report = protection(outcome.server, counts)
    for name, count in sent.items():
        assert report["epsilon"][name] == pytest.approx(epsilon(count, 20, 1e-5, "replace"), abs=1e-6)
        absent = report["privacy"]["epsilon"]["participation"][name]
        assert absent == pytest.approx(epsilon(count, 20, 1e-5, "participation"), abs=1e-6)
    assert report["delta"] == 1e-5 and report["privacy"]["void"] is None


def test_clean_evaluations_void_the_guarantee_visibly() -> None:
    outcome = federate(private("federation.benchmark=true", "federation.privacy.evaluate=clean"))
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    assert set(counts.values()) == {3}
    report = protection(outcome.server, counts)
    assert set(report["epsilon"].values()) == {None}
    assert "in the clear" in report["privacy"]["void"]
    with pytest.raises(ConfigError, match=r"evaluate = clean: validation and test rows would leave unprotected"):
        private("federation.privacy.evaluate=clean")


def test_evaluations_without_the_parties_keep_the_guarantee_and_know_nothing() -> None:
    outcome = federate(private("federation.benchmark=true", "federation.privacy.evaluate=none"))
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    report = protection(outcome.server, counts)
    assert set(counts.values()) == {3} and report["privacy"]["void"] is None
    assert None not in report["epsilon"].values()
    sent = [m for _, _, m in outcome.messages if type(m).__name__ == "Evaluation"]
    assert sent and not any(m.h.any() for m in sent)
    test = outcome.server.labels[outcome.server.schedule.partition.test]
    alike = torch.bincount(test, minlength=10) / len(test)  # one class for all rows
    assert min(abs(alike - outcome.server.metrics["test_accuracy"])) < 1e-6
    with pytest.raises(ConfigError, match=r"evaluate = none: evaluations and predictions would know nothing"):
        private("federation.privacy.evaluate=none")


def test_local_steps_use_clean_embeddings() -> None:
    """With noise that drowns everything, the party still learns from its own embeddings and the responses."""
    noisy = federate(private("federation.privacy.seeded=true", "federation.rounds=2"))
    assert all(math.isfinite(values.detach().abs().sum().item()) for values in parameters(noisy).values())
    ctx = noisy.clients["party1"]
    h = ctx.state["model"](ctx.features[torch.arange(200)])
    assert h.detach().norm().item() > 0.5  # the kept embeddings are not clipped


@pytest.mark.parametrize(
    ("policy", "sets", "said"),
    [
        ({"max_epsilon": 0.1}, (), r"party1.policy.max_epsilon = 0.1: the federation has \d+ releases at sigma"),
        ({"min_noise_multiplier": 21}, (), r"min_noise_multiplier = 21(.0)?: .* has a noise multiplier of 20"),
        ({"protocols": ["split"]}, (), r"policy.protocols = split: the federation has vimadmm"),
        ({"min_parties": 5}, (), r"min_parties = 5: the federation has 4"),
        (
            {"max_predicted_rows": 100}, ("federation.align=psi", "federation.keys.seeded=true"),
            r"max_predicted_rows = 100: .*keys.seeded = true",
        ),
        ({"blinded": True}, (), r"policy.blinded = true: the federation has no blinded sums in vimadmm"),
        ({"max_epsilon": 5}, ("federation.privacy.seeded=true",), r"max_epsilon = 5(.0)?: .*seeded = true"),
        ({"max_epsilon": 5}, ("federation.privacy.delta=1e-4",), r"max_delta = 1e-05: the federation has 0.0001"),
        ({"max_epsilon": 5}, ("federation.benchmark=true", "federation.privacy.evaluate=clean"),
         r"max_epsilon = 5(.0)?: .*evaluate = clean"),
        ({"min_noise_multiplier": 5}, ("federation.privacy.seeded=true",), r"min_noise_multiplier = 5.*seeded = true"),
        ({"min_noise_multiplier": 5}, ("federation.benchmark=true", "federation.privacy.evaluate=clean"),
         r"min_noise_multiplier = 5(.0)?: .*evaluate = clean"),
    ],
)  # fmt: skip
def test_a_policy_refuses_weaker_settings(policy: dict[str, Any], sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        privacy(PolicyConfig(**policy), *sets)


@pytest.mark.parametrize("rule", ["max_epsilon", "min_noise_multiplier"])
def test_a_policy_refuses_a_federation_without_privacy(rule: str) -> None:
    cfg = config(VIMADMM, *SHORT)
    with pytest.raises(ConfigError, match=rf"policy.{rule} = 3(.0)?: the federation has no federation.privacy"):
        Privacy("party1", cfg.federation, PolicyConfig(**{rule: 3}), None, None)


def test_a_policy_limits_the_budget_in_the_stronger_sense() -> None:
    """Ten releases fit the federation's epsilon for absent neighbours, fewer the party's own."""
    strict = privacy(PolicyConfig(max_epsilon=3.0), "federation.privacy.epsilon=8")
    stage = strict.stage(State())
    with pytest.raises(BudgetSpent):
        for _ in range(10_000):
            stage(torch.ones(2, 2), evaluation=False)
    assert epsilon(strict.releases, 20, 1e-5, "replace") <= 3 < epsilon(strict.releases + 1, 20, 1e-5, "replace")


def test_a_restarted_run_remembers_its_spent_budget(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    first = privacy(PolicyConfig(), "federation.privacy.epsilon=8", ledger=ledger)
    stage = first.stage(State())
    for _ in range(5):
        stage(torch.ones(2, 2), evaluation=False)
    first.close()
    assert privacy(PolicyConfig(), "federation.privacy.epsilon=8", ledger=ledger).releases == 5
    assert set(json.loads(ledger.read_text().splitlines()[0])) == {
        "time", "reserved", "noise_multiplier", "planned", "chain",
    }  # fmt: skip


def released(one: Privacy, count: int) -> None:
    stage = one.stage(State())
    for _ in range(count):
        stage(torch.ones(2, 2), evaluation=False)
    one.close()


FOUND = ("federation.privacy={clip: 1, epsilon: 8, predictions: 2}",)


def test_training_leaves_the_releases_that_are_kept_for_predictions(tmp_path: Path) -> None:
    cfg, ledger = config(VIMADMM, *SHORT, *FOUND), tmp_path / "ledger.jsonl"
    plan = Schedule(cfg.federation, 1797, 0).privacy
    assert plan is not None and plan.affordable is not None
    with pytest.raises(BudgetSpent, match=f"allowed {plan.affordable - 2} releases"):
        released(Privacy("party1", cfg.federation, PolicyConfig(), plan, ledger), plan.affordable)
    released(Privacy("party1", cfg.federation, PolicyConfig(), plan, ledger, predicts=True), 2)


def test_a_resumed_run_cannot_be_longer_than_the_noise_of_its_releases_pays_for(tmp_path: Path) -> None:
    """The longer plan has more noise, which earlier releases did not have; a shorter one pays for them."""
    ledger, lengths = tmp_path / "ledger.jsonl", {}
    for rounds in (2, 3, 9):
        cfg = config(VIMADMM, *SHORT, *FOUND, f"federation.rounds={rounds}")
        lengths[rounds] = Schedule(cfg.federation, 1797, 0).privacy
        assert lengths[rounds] is not None
        refuse_longer(lengths[rounds], ledger, lambda _: 0)  # type: ignore[arg-type]  # nothing has left
    released(Privacy("party1", cfg.federation, PolicyConfig(), lengths[3], ledger), 2)
    for rounds in (2, 3):
        refuse_longer(lengths[rounds], ledger, lambda _: 3)  # type: ignore[arg-type]
    with pytest.raises(BudgetSpent, match=r"pays for at most 3 rounds; \d+ releases in 9 rounds need"):
        refuse_longer(lengths[9], ledger, lambda _: 3)  # type: ignore[arg-type]


def test_parties_that_come_when_they_like_have_no_budget_that_can_be_planned() -> None:
    with pytest.raises(ConfigError, match=r"privacy.epsilon: parties that come when they like"):
        config({"name": "vafl", "arrivals": True}, "federation.privacy={clip: 1, epsilon: 8}")


def test_row_counts_of_a_seeded_run_of_0_2_go_on_as_parts_of_releases() -> None:
    """It kept releases, float64, whose sums are inexact."""
    adaptive = tuple(f"federation.privacy.{key}" for key in ("mechanism=adaptive", "seeded=true", "delta=1e-5"))
    old = torch.full((1797,), sum([1.1] * 20), dtype=torch.float64)  # 22.000000000000004
    state = State(Snapshot({"row counts": old}, {"row counts": {"tensor": "row counts"}}))
    privacy(PolicyConfig(), *adaptive).stage(state)
    kept = state.capture().tensors["row counts"]
    assert kept.dtype == torch.int64 and set(kept.tolist()) == {22 * PARTS}
    other = State(Snapshot({"row counts": old[1:]}, {"row counts": {"tensor": "row counts"}}))
    with pytest.raises(CheckpointError, match="row counts does not fit"):
        privacy(PolicyConfig(), *adaptive).stage(other)
