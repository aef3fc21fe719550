"""Split learning against a joint model in one process."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.protocols.split import Embedding, Gradient
from tests.support.federation import Outcome, config, federate, first, late, parameters

SPLIT = {"name": "split", "embedding": 16}


def run(*sets: str, **how) -> Outcome:
    return federate(config(SPLIT, "federation.rounds=8", "federation.epochs=0", *sets), **how)


def test_it_takes_the_steps_of_one_joint_model() -> None:
    """Autograd through the joint model is the oracle, optimiser by optimiser, loss by loss."""
    fresh = federate(config(SPLIT, "federation.rounds=1", "federation.epochs=0", "server.optimiser.lr=1e-12"))
    outcome = run()
    names = list(outcome.clients)
    bottoms = [copy.deepcopy(_initial(ctx)) for ctx in outcome.clients.values()]
    head = copy.deepcopy(fresh.server.state["head"])
    steps = [torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for b in bottoms]
    steps.append(torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3))
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        h = [b(outcome.clients[name].features[rows]) for b, name in zip(bottoms, names, strict=True)]
        loss = functional.cross_entropy(head(torch.cat(h, 1)), outcome.server.labels[rows])
        for step in steps:
            step.zero_grad()
        loss.backward()
        for step in steps:
            step.step()
        assert abs(loss.item() - event["loss"]) < 1e-5
    for bottom, name in zip(bottoms, names, strict=True):
        joint = torch.cat([p.flatten() for p in bottom.parameters()])
        assert torch.allclose(joint, parameters(outcome)[name], atol=1e-6)


def _initial(ctx):
    """The party's model as it was before the first round."""
    return first(ctx).model(16)


def test_waiting_for_all_waits_for_the_straggler() -> None:
    slow = late("party2", Embedding, seconds=5.0)
    outcome = run(delay=slow)
    assert not outcome.of_kind("missing")
    assert 40 <= outcome.seconds < 41
    assert outcome.of_kind("round")[3]["slowest"] == {"party": "party2", "seconds": 5.0}


def test_a_missing_party_counts_as_zeros() -> None:
    lost = late("party4")
    outcome = run("federation.quorum={need: 3}", "federation.rounds=1", delay=lost)
    gradients = [to for sender, to, m in outcome.messages if sender == SERVER and isinstance(m, Gradient)]
    assert gradients == ["party1", "party2", "party3"]
