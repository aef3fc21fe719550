"""The reference on joined data against plain torch on the joined matrix."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.models.build import build_head
from colonnade.common.protocols.centralized import Features
from colonnade.server.protocols.centralized import Joined
from tests.support.federation import Outcome, config, federate, parameters

CENTRALIZED = {"name": "centralized"}
MLP = "server.head={name: mlp, hidden: 24, dropout: 0}"


def run(*sets: str, **how) -> Outcome:
    return federate(config(CENTRALIZED, "federation.rounds=8", "federation.epochs=0", *sets), **how)


@pytest.mark.parametrize("head", ["server.head=linear", "server.head={name: linear, bias: true}", MLP])
def test_it_takes_the_steps_of_plain_torch_on_the_joined_matrix(head: str) -> None:
    outcome = run(head)
    server = outcome.server
    rows = torch.arange(len(server.labels))
    x = torch.cat([ctx.features[rows].flatten(1) for ctx in outcome.clients.values()], dim=1)
    assert x.shape == (1797, 64)
    model = build_head(server.config.head, 64, 10, server.draws.generator("head"))
    step = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-3)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        batch = server.schedule.batch(t)
        loss = functional.cross_entropy(model(x[batch]), server.labels[batch])
        step.zero_grad()
        loss.backward()
        step.step()
        assert abs(loss.item() - event["loss"]) < 1e-6
    plain = torch.cat([p.flatten() for p in model.parameters()])
    assert torch.allclose(plain, parameters(outcome)[SERVER], atol=1e-6)
    test = server.schedule.partition.test
    hits = (model(x[test]).argmax(1) == server.labels[test]).float().mean().item()
    assert abs(server.metrics["test_accuracy"] - hits) < 1e-6


def test_a_missing_party_counts_as_zeros() -> None:
    def lost(sender: str, _to: str, item: object) -> float:
        return 1e6 if sender == "party4" and getattr(item, "round", 0) == 2 else 0.0

    outcome = run("federation.quorum={need: 3}", "federation.rounds=2", delay=lost)
    assert [e["party"] for e in outcome.of_kind("missing")] == ["party4"]
    server = outcome.server
    x = torch.cat([m.x for _, _, m in outcome.messages if isinstance(m, Features) and m.round == 2][:3], dim=1)
    before = parameters(run("federation.rounds=1"))[SERVER].view(10, 64)
    loss = functional.cross_entropy(x @ before[:, :48].t(), server.labels[server.schedule.batch(2)])
    assert abs(loss.item() - outcome.of_kind("round")[1]["loss"]) < 1e-6


def test_rounds_before_everyone_has_been_heard_are_left_out() -> None:
    def lost(sender: str, _to: str, item: object) -> float:
        return 5.0 if sender == "party4" and getattr(item, "round", 0) == 1 else 0.5

    outcome = run("federation.quorum={need: 3, grace: 0.1}", "federation.rounds=20", delay=lost)
    skipped = [event["round"] for event in outcome.of_kind("skipped")]
    assert skipped and skipped[0] == 1 and max(skipped) < 20
    assert outcome.server.metrics["test_accuracy"] > 0.3


def test_a_party_with_more_columns_than_agreed_reports_it() -> None:
    with pytest.raises(ConfigError, match=r"party1 has 16 columns, federation\.protocol\.columns allows 15"):
        run("federation.protocol.columns=15")


def test_a_party_cannot_change_its_number_of_columns() -> None:
    joined = Joined(copy.copy(run("federation.rounds=1").server), ("party1", "party2", "party3", "party4"))
    assert joined.columns == 64
    with pytest.raises(ContractError, match=r"party2 sent Features\.x: expected columns = 16"):
        joined.learn("Features", {"party2": torch.zeros(3, 15)})
