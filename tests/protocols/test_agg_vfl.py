"""Averaged predictions against autograd on the joint model, the server's own part included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.protocols.agg_vfl import Evaluation, Gradient, Prediction
from colonnade.common.run.state import State
from colonnade.server.training.fusion.active import active_party
from tests.support.federation import Outcome, config, federate, first

pytestmark = pytest.mark.slow

AGG = {"name": "agg_vfl", "embedding": 16}
DIFFERENT = (
    "server.active.model=linear",
    "parties.party1={model: {name: mlp, hidden: 20}, head: {name: linear, bias: true}}",
    "parties.party2={model: {name: polynomial, layers: 2}, head: {name: mlp, hidden: 8, dropout: 0}}",
    "parties.party3.model={name: linear, activation: none}",
)


def run(*sets: str, **how) -> Outcome:
    return federate(config(AGG, "federation.rounds=8", "federation.epochs=0", *sets), **how)


def kept(outcome: Outcome) -> dict[str, Tensor]:
    """All members' two networks, flat."""
    states = {name: ctx.state for name, ctx in outcome.clients.items()}
    pairs = {name: (state["model"], state["head"]) for name, state in states.items()}
    pairs[SERVER] = (outcome.server.state["active model"], outcome.server.state["head"])
    return {name: _flat(nn.ModuleList(pair)) for name, pair in pairs.items()}


def _flat(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


class Joint:
    """All members' networks as they were before the first round, in one process, with SGD as configured by default."""

    def __init__(self, outcome: Outcome) -> None:
        self.server, self.clients = outcome.server, outcome.clients
        fresh = replace(outcome.server, state=State())
        active_party(fresh, 16)
        self.models = {SERVER: nn.Sequential(fresh.state["active model"], fresh.state["head"])}
        for name, ctx in outcome.clients.items():
            again = first(ctx)
            self.models[name] = nn.Sequential(again.model(16), again.head(16))
        rates = {SERVER: 0.1, **dict.fromkeys(outcome.clients, 0.03)}
        self.steps = {
            name: (
                torch.optim.SGD(model[0].parameters(), 0.1, 0.9, weight_decay=1e-3),
                torch.optim.SGD(model[1].parameters(), rates[name], weight_decay=1e-3),
            )
            for name, model in self.models.items()
        }

    def predictions(self, rows: Tensor) -> dict[str, Tensor]:
        """R_k of every member."""
        columns = {SERVER: self.server.columns, **{name: ctx.features for name, ctx in self.clients.items()}}
        return {name: model(columns[name][rows]) for name, model in self.models.items()}

    def learn(self, r: Tensor, rows: Tensor, who: list[str]) -> float:
        """One step of these members down the loss at the average."""
        loss = functional.cross_entropy(r, self.server.labels[rows])
        for model in self.models.values():
            model.zero_grad()
        loss.backward()
        for name in who:
            for step in self.steps[name]:
                step.step()
        return loss.item()

    def assert_equal(self, outcome: Outcome) -> None:
        for name, values in kept(outcome).items():
            torch.testing.assert_close(_flat(self.models[name]), values, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("different", [(), DIFFERENT], ids=["homogeneous", "heterogeneous"])
def test_it_takes_the_steps_of_one_joint_model(different: tuple[str, ...]) -> None:
    outcome = run(*different)
    joint = Joint(outcome)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        each = joint.predictions(rows)
        assert abs(joint.learn(sum(each.values()) / 5, rows, list(each)) - event["loss"]) < 1e-5
    joint.assert_equal(outcome)
    tested = outcome.server.schedule.partition.test
    right = sum(joint.predictions(tested).values()).argmax(1) == outcome.server.labels[tested]
    assert outcome.server.metrics["test_accuracy"] == pytest.approx(right.double().mean().item())


def test_all_are_sent_the_gradient_at_their_own_predictions() -> None:
    outcome = run("federation.rounds=1")
    sent = {to: m.dr for sender, to, m in outcome.messages if isinstance(m, Gradient)}
    each = Joint(outcome).predictions(rows := outcome.server.schedule.batch(1))
    leaves = [r.detach().requires_grad_() for r in each.values()]
    functional.cross_entropy(torch.stack(leaves).mean(0), outcome.server.labels[rows]).backward()
    assert list(sent) == ["party1", "party2", "party3", "party4"]
    for dr in sent.values():
        torch.testing.assert_close(dr, leaves[0].grad)
        assert torch.equal(dr.argmin(1), outcome.server.labels[rows])  # as docs/who_sees_what.md states


def lost(sender: str, _to: str, item: object) -> float:
    """party4's messages never arrive after the sixth round, which ends the first epoch."""
    return 1e6 if sender == "party4" and isinstance(item, Prediction | Evaluation) and item.round > 6 else 0.0


@pytest.mark.parametrize("missing", ["leave_out", "zero", "last"])
def test_imputation_of_a_missing_party(missing: str) -> None:
    """Left out, the average is over four; as zeros, or with its output of an epoch ago, over five."""
    sets = (f"federation.protocol.missing={missing}", "federation.quorum={need: 3}", "federation.rounds=9")
    outcome = run(*sets, delay=lost)
    joint = Joint(outcome)
    said = {m.round: m.r for sender, _, m in outcome.messages if sender == "party4" and isinstance(m, Prediction)}
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        each = joint.predictions(rows)
        if t > 6:
            each["party4"] = said[t - 6] if missing == "last" else torch.zeros(len(rows), 10)
        count = 4 if t > 6 and missing == "leave_out" else 5
        who = [name for name in each if t <= 6 or name != "party4"]
        assert abs(joint.learn(sum(each.values()) / count, rows, who) - event["loss"]) < 1e-5
    assert [e["round"] for e in outcome.of_kind("missing")] == [7, 8, 9]
    tested = outcome.server.schedule.partition.test
    each = joint.predictions(tested)
    r = sum(each[name] for name in each if name != "party4") / (4 if missing == "leave_out" else 5)
    loss = functional.cross_entropy(r, outcome.server.labels[tested]).item()
    assert outcome.server.metrics["test_loss"] == pytest.approx(loss, rel=1e-4)  # no last prediction is of test rows


def test_a_round_may_be_left_out_for_a_missing_party() -> None:
    outcome = run("federation.protocol.missing=skip", "federation.quorum={need: 3}", delay=lost)
    assert [event["round"] for event in outcome.of_kind("skipped")] == [7]  # the last one is not, it is evaluated
    sent = [to for _, to, m in outcome.messages if isinstance(m, Gradient) and m.round == 8]
    assert sent == ["party1", "party2", "party3"]
