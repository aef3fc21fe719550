"""VIMADMM with local steps over rows that every party draws in secret."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from colonnade.client.privacy import mechanisms
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.protocols.vimadmm import SecretSteps
from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import Config
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import BudgetSpent, ConfigError, InputError
from colonnade.common.models.backprop import Backprop
from colonnade.common.privacy.accounting.budget import StepBudget
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.noise import secure_bytes, seeded_bytes, seeded_normals
from colonnade.common.privacy.rows import RowPlan, SampledSteps
from colonnade.common.run.state import State
from colonnade.server.member.summary import protection
from tests.protocols.test_resume import END, SHORT, same
from tests.support.federation import Outcome, config, federate

VIMADMM = {"name": "vimadmm", "embedding": 8, "tau": 2}
STEPS = "steps: {clip: 0.5, rate: 0.1, noise_multiplier: 1.5}"
PRIVATE = (
    f"federation.privacy={{mechanism: adaptive, clip: 1, noise_multiplier: 2, delta: 1.0e-4, {STEPS}, seeded: %s}}"
)


def secret(*sets: str, seeded: bool = True) -> Config:
    return config(VIMADMM, *SHORT, PRIVATE % str(seeded).lower(), *sets)


@cache
def alone() -> Outcome:
    return federate(secret(), save=True)


def mechanism(rate: float = 0.1, sigma: float = 1.5, limit: int = 10_000, clip: float = 0.5) -> SampledSteps:
    steps = {"clip": clip, "rate": rate, "noise_multiplier": sigma}
    said: dict[str, Any] = {"clip": 1.0, "noise_multiplier": 2.0, "delta": 1e-5, "steps": steps}
    settings, kind = AdaptivePrivacyConfig(mechanism="adaptive", **said), SampledGaussian(rate, sigma, limit)
    plan = RowPlan(settings, 2.0, 1, 1, None, 40, steps=kind)
    draws = torch.Generator().manual_seed(3)
    return SampledSteps(plan, StepBudget(None, kind), seeded_normals(draws), seeded_bytes(draws))


def test_every_row_is_drawn_with_the_rate_independently() -> None:
    steps, held, counts = mechanism(), torch.arange(5, 205), torch.zeros(300)
    sizes = []
    for _ in range(400):
        rows = steps.draw(held)
        counts[rows] += 1
        sizes.append(len(rows))
        assert len(rows.unique()) == len(rows)
    assert counts[held].sum() == counts.sum()
    low, high = binom.ppf([1e-5, 1 - 1e-5], 400, 0.1)
    assert low <= counts[held].min() and counts[held].max() <= high
    assert np.var(sizes) == pytest.approx(200 * 0.1 * 0.9, rel=0.3)  # a fixed number would have none


def test_the_number_that_was_drawn_is_not_divided_by() -> None:
    """It is as secret as the rows: two neighbours that draw other numbers would differ in scale."""
    steps = mechanism(sigma=0.1, clip=1e-6)
    means = []
    for _ in range(6):
        drawn = len(steps.draw(torch.arange(200)))
        (mean,) = steps.mean([torch.full((drawn, 1), 5e-7)])
        means.append((drawn, float(mean)))
    assert len({drawn for drawn, _ in means}) > 2
    for drawn, mean in means:
        assert mean == pytest.approx(drawn * 5e-7 / 20, abs=6 * 1e-7 / 20)


def test_noise_has_the_configured_deviation_and_no_step_is_taken_without_a_draw() -> None:
    steps = mechanism(sigma=3.0)
    steps.draw(torch.arange(200))
    (mean,) = steps.mean_of([torch.zeros(300, 400)], 0)
    assert float(mean.std()) * 20 == pytest.approx(3.0 * 0.5, rel=0.01)
    with pytest.raises(InputError, match="rows that were not drawn"):
        steps.mean_of([torch.zeros(3)], 0)


def test_a_step_beyond_the_plan_is_refused() -> None:
    steps = mechanism(limit=2)
    steps.draw(torch.arange(9)), steps.draw(torch.arange(9))
    with pytest.raises(BudgetSpent):
        steps.draw(torch.arange(9))


def local(by_hand: bool = True) -> tuple[ClientContext, Backprop, list[torch.Tensor]]:
    """A party's context with 40 rows, whose steps clip nothing."""
    cfg = config(VIMADMM, *SHORT, PRIVATE % "true", "every_party.model={name: mlp, hidden: 12}", "federation.batch=20")
    schedule, steps = Schedule(cfg.federation, 40, 0), mechanism(rate=0.3, clip=1e6)
    features = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    ctx = ClientContext(
        "party1", cfg.federation, cfg.parties["party1"], features, schedule,
        release=None, admit_masked=None, steps=steps,
    )  # fmt: skip
    model = ctx.model(8)
    if not by_hand:
        model.body.append(nn.Identity())
    return ctx, ctx.backprop(model), list(model.body.parameters())


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_step_is_equation_9_of_the_drawn_rows_by_autograd(by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, bottom, parameters = local(by_hand)
    monkeypatch.setattr("colonnade.common.privacy.response_noise.add_normals", lambda total, *_: total)
    made = torch.Generator().manual_seed(2)
    normal = partial(torch.randn, generator=made)
    train = ctx.schedule.partition.train
    batch, dual, residual, head = train[:12], normal(12, 10), normal(12, 10), normal(8, 10)
    drawn: list[torch.Tensor] = []
    steps = SecretSteps(
        ctx, lambda held: drawn.append(ctx.steps.draw(held)) or drawn[-1], bottom, lambda: None, 10, 0.7
    )
    steps.take(batch, dual, residual)
    for _ in range(4):
        steps.descend(head, 1)
        rows = drawn[-1]
        assert set(rows.tolist()) <= set(batch.tolist())  # no row without a dual
        place = [batch.tolist().index(row) for row in rows.tolist()]
        o = ctx.state["model"](ctx.features[rows]) @ head
        loss = (dual[place] * o).sum() + 0.35 * (residual[place] - o).square().sum()
        expected = torch.autograd.grad(loss / (0.3 * 12), parameters) if len(rows) else None
        for p, wanted in zip(parameters, expected or [torch.zeros_like(p) for p in parameters], strict=True):
            torch.testing.assert_close(p.grad, wanted.to(p.grad.dtype), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_step_that_draws_no_row_is_noise_alone(by_hand: bool) -> None:
    ctx, bottom, parameters = local(by_hand)
    steps = SecretSteps(ctx, ctx.steps.draw, bottom, lambda: None, 10, 1.0)
    steps.descend(torch.zeros(8, 10), 1)  # no dual has come yet
    assert all(p.grad.shape == p.shape and p.grad.std() > 1e5 for p in parameters)


def test_the_newest_dual_of_a_row_counts_and_all_rows_seen_can_be_drawn() -> None:
    ctx, bottom, _ = local()
    seen: list[torch.Tensor] = []
    steps = SecretSteps(ctx, lambda held: seen.append(held) or held[:0], bottom, lambda: None, 10, 1.0)
    train = ctx.schedule.partition.train
    for first in (0, 6, 0):
        steps.take(train[first : first + 6], torch.full((6, 10), float(len(seen))), torch.zeros(6, 10))
        ctx.steps._expected = 1.0  # type: ignore[union-attr]
        steps.descend(torch.zeros(8, 10), 1)
    assert [len(held) for held in seen] == [6, 12, 12]
    assert (ctx.state["held duals"][train[:6]] == 2).all() and (ctx.state["held duals"][train[6:12]] == 1).all()


def drawn_in(outcome_of: Config, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Rows that the parties drew in a run, step after step."""
    seen: list[list[int]] = []
    whole = SampledSteps.draw

    def noted(self: SampledSteps, held: torch.Tensor) -> torch.Tensor:
        rows = whole(self, held)
        seen.append(rows.tolist())
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(SampledSteps, "draw", noted)
        federate(outcome_of)
    return seen


def test_draws_depend_on_nothing_that_the_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded, so that runs can be compared: other labels and rates at the server, the same rows at the parties."""
    one = drawn_in(secret(), monkeypatch)
    two = drawn_in(secret("server.privacy.labels={epsilon: 0.1, seeded: true}", "server.optimiser.lr=0.9"), monkeypatch)
    assert one == two and len(one) == 4 * 2 * END and one[0] != one[2]


def test_draws_are_new_in_every_run_and_from_the_systems_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (drawn_in(secret("federation.rounds=1", seeded=False), monkeypatch) for _ in range(2))
    assert one != two
    assert mechanisms.secure_bytes is secure_bytes


def test_rows_reach_beyond_the_announced_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = secret()
    schedule, drawn = Schedule(cfg.federation, 1797, 0), drawn_in(cfg, monkeypatch)
    second = {row for rows in drawn[8:16] for row in rows}
    first_batch, second_batch = (set(schedule.batch(t).tolist()) for t in (1, 2))
    assert second & first_batch and second & second_batch and second <= first_batch | second_batch


def test_a_resumed_run_ends_as_one_that_was_left_alone_and_forgetting_shows() -> None:
    cfg, whole = secret(), alone()
    resumed = federate(cfg, save=True, start=(2, whole.saved[2]))
    assert all(same(resumed.saved[END][member], whole.saved[END][member]) for member in (SERVER, *cfg.federation.names))
    forgetful = {member: kept for member, kept in whole.saved[2].items() if member != "party2"}
    assert not same(federate(cfg, save=True, start=(2, forgetful)).saved[END]["party2"], whole.saved[END]["party2"])


def test_the_headline_is_of_releases_and_all_steps_together() -> None:
    outcome = federate(secret(seeded=False))
    plan = outcome.server.schedule.privacy
    assert plan is not None and plan.void is None and plan.steps == SampledGaussian(0.1, 1.5, 2 * END)
    spent = {name: held.releases for name, held in outcome.privacy.items()}
    report = protection(outcome.server, spent)
    most = max(spent.values())
    assert report["epsilon"]["party1"] == pytest.approx(plan.steps.joint_epsilon(most, 2.0, 1e-4), abs=1e-5)
    whole = SampledGaussian(0.1, 1.5, 4 * 2 * END)
    assert report["person"]["epsilon"] == pytest.approx(whole.joint_epsilon(4 * most, 2.0, 1e-4), abs=1e-5)
    assert report["privacy"]["secret_steps"] == {"rate": 0.1, "noise_multiplier": 1.5, "steps": 2 * END}


def test_steps_are_in_the_partys_ledger(tmp_path: Path) -> None:
    cfg, ledger = secret(seeded=False), tmp_path / "ledger.jsonl"
    schedule = Schedule(cfg.federation, 1797, 0)
    assert schedule.privacy is not None and schedule.privacy.steps is not None
    privacy = Privacy("party1", cfg.federation, PolicyConfig(), schedule.privacy, ledger)
    privacy.stage(State())
    assert isinstance(privacy.steps, SampledSteps)
    privacy.steps.draw(torch.arange(30))
    assert StepBudget(ledger, schedule.privacy.steps).steps >= 1  # before it is closed
    privacy.close()
    assert StepBudget(ledger, schedule.privacy.steps).steps == 1


@pytest.mark.parametrize(
    ("protocol", "more", "said"),
    [
        ({"name": "split"}, "", r"steps\.rate with the protocol split: its steps are on the announced batch"),
        ({**VIMADMM, "head": {"name": "mlp"}}, "", r"steps\.rate with federation\.protocol\.head: mlp"),
        (VIMADMM, "accounting: renyi", r"steps\.rate with accounting = renyi"),
        (VIMADMM, "delta: 1.0e-12", r"delta = 1e-12 with steps\.rate"),
        (VIMADMM, "steps: {clip: 1, rate: 0.1}", r"steps\.rate without noise_multiplier"),
        (VIMADMM, "steps: {clip: 1, noise_multiplier: 1}", r"steps\.noise_multiplier without rate"),
        (VIMADMM, "steps: {clip: 1, cost: 0.1, rate: 0.1, noise_multiplier: 1}", r"steps\.cost with rate"),
    ],
)
def test_what_does_not_go_together_is_refused(protocol: dict[str, Any], more: str, said: str) -> None:
    settings = {"delta": "delta: 1.0e-4", "steps": STEPS}
    settings.update({more.partition(":")[0]: more} if more else {})
    text = ", ".join(("mechanism: adaptive, clip: 1, noise_multiplier: 2", *settings.values()))
    with pytest.raises(ConfigError, match=said) as refusal:
        config(protocol, f"federation.privacy={{{text}}}")
    assert refusal.value.hint
