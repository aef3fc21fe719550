"""FedBCD against autograd: one joint gradient at the cut, followed for many steps by every model."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.protocols.fedbcd import Gradient
from tests.support.federation import Outcome, config, federate, first, parameters

FEDBCD = {"name": "fedbcd", "embedding": 16, "tau": 3}


def run(*sets: str, **how) -> Outcome:
    return federate(config(FEDBCD, "federation.rounds=8", "federation.epochs=0", *sets), **how)


def test_every_party_follows_one_gradient_for_tau_steps() -> None:
    """The box, written again with autograd on the joint model; no gradient at the cut is ever renewed."""
    fresh = federate(config(FEDBCD, "federation.rounds=1", "federation.epochs=0", "server.optimiser.lr=1e-12"))
    outcome = run()
    names = list(outcome.clients)
    models = [first(ctx).model(16) for ctx in outcome.clients.values()]
    head = copy.deepcopy(fresh.server.state["head"])
    steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for m in models]
    head_step = torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        x = [outcome.clients[name].features[rows] for name in names]
        h = [model(part).detach().requires_grad_() for model, part in zip(models, x, strict=True)]
        loss = functional.cross_entropy(head(torch.cat(h, 1)), outcome.server.labels[rows])
        head_step.zero_grad()
        loss.backward()
        head_step.step()
        assert abs(loss.item() - event["loss"]) < 1e-5
        for model, step, part, cut in zip(models, steps, x, h, strict=True):
            for _ in range(3):
                step.zero_grad()
                (model(part) * cut.grad).sum().backward()
                step.step()
    for model, name in zip(models, names, strict=True):
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-5)
    assert torch.allclose(head.weight.flatten(), parameters(outcome)[SERVER], atol=1e-5)


def test_with_one_step_it_is_split_learning() -> None:
    split = {"name": "split", "embedding": 16}
    one = run("federation.protocol.tau=1")
    other = federate(config(split, "federation.rounds=8", "federation.epochs=0"))
    assert [e["loss"] for e in one.of_kind("round")] == [e["loss"] for e in other.of_kind("round")]
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(other)[name])


def test_a_model_that_ends_in_a_relu_gets_the_whole_gradient_every_time() -> None:
    """Going back through a ReLU masks its gradient in place: the next step must not inherit that mask."""
    relu = ("every_party.model={name: linear, activation: relu}", "federation.rounds=1")
    outcome = run(*relu)
    (dh,) = (m.dh for _, to, m in outcome.messages if to == "party1" and isinstance(m, Gradient))
    ctx = outcome.clients["party1"]
    model, x = first(ctx).model(16), ctx.features[outcome.server.schedule.batch(1)]
    step = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for _ in range(3):
        step.zero_grad()
        (model(x) * dh).sum().backward()
        step.step()
    ours = torch.cat([p.flatten() for p in model.parameters()])
    assert torch.allclose(ours, parameters(outcome)["party1"], atol=1e-6)
