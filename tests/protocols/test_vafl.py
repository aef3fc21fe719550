"""VAFL against autograd on one joint model: all parties together, and as they come."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.protocols.vafl import Embedding, Gradient
from tests.support.federation import Outcome, config, federate, first, late, parameters, uneven

pytestmark = pytest.mark.slow

VAFL = {"name": "vafl", "embedding": 16, "weights_lr": 0.05}
COME = "federation.protocol.arrivals=true"


def run(*sets: str, **how) -> Outcome:
    return federate(config(VAFL, "federation.rounds=8", "federation.epochs=0", *sets), **how)


def beginning(outcome: Outcome) -> SimpleNamespace:
    """Everything as it was before the first round, with optimisers as the configuration has them."""
    names = list(outcome.clients)
    fresh = federate(config(VAFL, "federation.rounds=1", "federation.epochs=0", "server.optimiser.lr=1e-12"))
    models = {name: first(ctx).model(16) for name, ctx in outcome.clients.items()}
    head = copy.deepcopy(fresh.server.state["head"])
    weights = torch.full((len(names),), 1 / len(names), requires_grad=True)
    sgd = {name: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1e-3) for name, m in models.items()}
    top = torch.optim.SGD(
        [{"params": head.parameters(), "weight_decay": 1e-3}, {"params": [weights], "lr": 0.05}], lr=0.1
    )
    return SimpleNamespace(names=names, models=models, head=head, weights=weights, sgd=sgd, top=top)


def assert_equal_in_the_end(joint: SimpleNamespace, outcome: Outcome) -> None:
    for name, model in joint.models.items():
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-5)
    assert torch.allclose(joint.head.weight.flatten(), parameters(outcome)[SERVER], atol=1e-5)
    assert torch.allclose(joint.weights, outcome.server.state["weights"], atol=1e-5)
    assert not torch.allclose(joint.weights, torch.full_like(joint.weights, 0.25), atol=1e-4)


def test_together_it_takes_the_steps_of_one_joint_model() -> None:
    outcome = run()
    joint = beginning(outcome)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        h = [joint.models[name](outcome.clients[name].features[rows]) for name in joint.names]
        mixed = sum(weight * part for weight, part in zip(joint.weights, h, strict=True))
        loss = functional.cross_entropy(joint.head(mixed), outcome.server.labels[rows])
        for step in (joint.top, *joint.sgd.values()):
            step.zero_grad()
        loss.backward()
        for step in (joint.top, *joint.sgd.values()):
            step.step()
        assert abs(loss.item() - event["loss"]) < 1e-5
    assert_equal_in_the_end(joint, outcome)


paced = uneven(Embedding)


def test_as_they_come_every_arrival_is_a_step_with_the_last_embeddings_of_the_others() -> None:
    """Replayed from the order in which the server answered: a table of last embeddings, and autograd."""
    outcome = run(COME, "federation.evaluate.every=8", delay=paced)
    joint = beginning(outcome)
    last = {name: torch.zeros(len(outcome.server.labels), 16) for name in joint.names}
    sent = {name: [m for s, _, m in outcome.messages if s == name and isinstance(m, Embedding)] for name in joint.names}
    answered = [to for _, to, m in outcome.messages if isinstance(m, Gradient)]
    assert len(answered) == 8 * 4
    done = dict.fromkeys(joint.names, 0)
    losses = []
    for name in answered:
        done[name] += 1
        rows = outcome.server.schedule.batch(done[name])
        h = joint.models[name](outcome.clients[name].features[rows])
        message = next(m for m in sent[name] if m.turn == done[name])
        assert torch.allclose(message.h, h, atol=1e-5)
        others = [
            weight * (h if other == name else last[other][rows])
            for other, weight in zip(joint.names, joint.weights, strict=True)
        ]
        last[name][rows] = h.detach()
        loss = functional.cross_entropy(joint.head(sum(others)), outcome.server.labels[rows])
        for step in (joint.top, joint.sgd[name]):
            step.zero_grad()
        loss.backward()
        for step in (joint.top, joint.sgd[name]):
            step.step()
        losses.append(loss.item())
    for number, event in enumerate(outcome.of_kind("round")):
        assert abs(sum(losses[number * 4 : number * 4 + 4]) / 4 - event["loss"]) < 1e-5
    assert_equal_in_the_end(joint, outcome)
    assert done["party1"] > done["party2"] > done["party4"] >= 1
    assert done == {name: ctx.state["turns"]["done"] for name, ctx in outcome.clients.items()}


def test_asynchronously_only_an_evaluation_waits_for_a_slow_party() -> None:
    def slow(sender: str, _to: str, item: object) -> float:
        if not isinstance(item, Embedding):
            return 0.0
        return 10.0 if sender == "party2" else 0.1

    together = run("federation.rounds=24", "federation.evaluate.every=12", delay=slow)
    come = run(COME, "federation.rounds=24", "federation.evaluate.every=12", delay=slow)
    assert together.seconds >= 240
    assert 20 <= come.seconds < 25  # party2 delays the two evaluations, and nothing else
    assert [event["round"] for event in come.of_kind("round")] == list(range(1, 25))
    missed = {event["round"] for event in come.of_kind("missing") if event["party"] == "party2"}
    assert missed == set(range(1, 25)) - {12, 24}
    assert come.clients["party2"].state["turns"]["done"] == 2
    assert come.clients["party1"].state["turns"]["done"] > 24
    assert come.late["party2"] == 2  # its exchange in flight when each evaluation called all parties


def test_as_they_come_a_checkpoint_leaves_nothing_under_way() -> None:
    """After every round, each party has done just the exchanges that the server has answered."""
    outcome = run(COME, "federation.evaluate.every=8", delay=paced, save=True)
    assert sorted(outcome.saved) == list(range(1, 9))
    answered = dict.fromkeys(outcome.clients, 0)
    expected = {}
    for sender, to, message in outcome.messages:
        if sender == SERVER and isinstance(message, Gradient):
            answered[to] += 1
            expected[sum(answered.values())] = dict(answered)
    for round, held in outcome.saved.items():
        turns = {name: dict(map(tuple, held[name].values["turns"]["items"]))["done"] for name in outcome.clients}
        assert turns == expected[4 * round]


def test_as_they_come_a_resumed_run_goes_on_to_the_end() -> None:
    cfg = config(VAFL, "federation.rounds=8", "federation.epochs=0", COME, "federation.evaluate.every=4")
    alone = federate(cfg, save=True, delay=paced)
    for round in (1, 4, 6):
        resumed = federate(cfg, save=True, start=(round, alone.saved[round]), delay=paced)
        assert [e["round"] for e in resumed.of_kind("round")] == list(range(round + 1, 9))
        turns = sum(ctx.state["turns"]["done"] for ctx in resumed.clients.values())
        assert turns == 8 * 4


def test_as_they_come_the_same_order_gives_the_same_bits() -> None:
    one, two = run(COME, delay=paced), run(COME, delay=paced)
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])
    other = run(COME)
    assert any(not torch.equal(values, parameters(other)[name]) for name, values in parameters(one).items())


@pytest.mark.parametrize("come", [False, True])
def test_side_by_side_it_takes_the_steps_of_split_learning_on_the_concatenation(come: bool) -> None:
    def delay(sender: str, _to: str, item: object) -> float:
        return 0.1 * int(sender[-1]) + 0.01 if sender != SERVER and type(item).__name__ == "Embedding" else 0.001

    arrivals = f"federation.protocol.arrivals={str(come).lower()}"
    side = run("federation.protocol.combine=concatenate", arrivals, delay=delay)
    short = ("federation.rounds=8", "federation.epochs=0")
    other = federate(
        config({"name": "split_avg", "embedding": 16, "combine": "concatenate"}, *short, arrivals), delay=delay
    )
    for name, values in parameters(other).items():
        assert torch.allclose(parameters(side)[name], values, atol=1e-6)
    assert "weights" not in side.server.state
    assert side.server.state["head"].weight.shape == (10, 4 * 16)


def test_as_they_come_a_missing_party_is_not_waited_for_beyond_the_quorum() -> None:
    lost = late("party4", others=0.1)
    outcome = run(COME, "federation.quorum={need: 3, grace: 1.0}", "federation.evaluate.every=4", delay=lost)
    assert [e["round"] for e in outcome.of_kind("evaluation")] == [4, 8, 8]
    assert "party4" not in {to for _, to, m in outcome.messages if isinstance(m, Gradient)}
