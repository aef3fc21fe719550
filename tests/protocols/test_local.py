"""The active party alone against plain torch on its own columns."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.protocols.local import CONTRACT
from colonnade.common.protocols.split import Embedding
from colonnade.common.run.state import State
from colonnade.server.training.fusion.active import active_party
from tests.support.federation import Outcome, config, federate

LOCAL = {"name": "local", "embedding": 16}


def run(*sets: str, **how) -> Outcome:
    return federate(config(LOCAL, "federation.rounds=8", "federation.epochs=0", *sets), **how)


def kept(outcome: Outcome) -> Tensor:
    """Both of the server's networks, flat."""
    state = outcome.server.state
    return nn.utils.parameters_to_vector([*state["active model"].parameters(), *state["head"].parameters()]).detach()


def losses(outcome: Outcome) -> list[float]:
    return [event["loss"] for event in outcome.of_kind("round")]


@pytest.mark.parametrize("head", ["linear", "{name: mlp, hidden: 12, dropout: 0}"])
def test_it_takes_the_steps_of_plain_torch_on_the_servers_columns(head: str) -> None:
    server = (outcome := run(f"server.head={head}", "server.optimiser.momentum=0.5")).server
    fresh = replace(server, state=State())
    active_party(fresh, 16)
    model = nn.Sequential(fresh.state["active model"], fresh.state["head"])
    steps = [
        torch.optim.SGD(model[0].parameters(), 0.1, 0.9, weight_decay=1e-3),
        torch.optim.SGD(model[1].parameters(), 0.1, 0.5, weight_decay=1e-3),
    ]
    assert server.columns is not None and server.columns.shape == (1797, 13)  # of 64, the first of five shares
    for t, found in enumerate(losses(outcome), 1):
        rows = server.schedule.batch(t)
        loss = functional.cross_entropy(model(server.columns[rows]), server.labels[rows])
        model.zero_grad()
        loss.backward()
        for step in steps:
            step.step()
        assert abs(loss.item() - found) < 1e-5
    torch.testing.assert_close(nn.utils.parameters_to_vector(model.parameters()).detach(), kept(outcome))
    tested = server.schedule.partition.test
    right = model(server.columns[tested]).argmax(1) == server.labels[tested]
    assert server.metrics["test_accuracy"] == pytest.approx(right.double().mean().item())


def test_nothing_is_said() -> None:
    outcome = run()
    assert CONTRACT.messages == () and outcome.messages == [] and outcome.payload == (0, 0)
    assert all("model" not in ctx.state for ctx in outcome.clients.values())


def test_a_party_that_sends_a_message_is_refused() -> None:
    mailbox = Mailbox()
    link = Link("ada", CONTRACT.kinds, {}, lambda _item: None, mailbox)
    link.deliver(Embedding(1, torch.zeros(2, 3)))
    said = "ada sent Embedding: expected no message at all, got an undeclared kind"
    assert str(mailbox.fault(["ada"])) == said
    with pytest.raises(ContractError, match="expected no message at all"):
        asyncio.run(link.send(Embedding(1, torch.zeros(2, 3))))


def test_the_parties_data_do_not_matter() -> None:
    other = run("every_party.data.noise.std=3", "every_party.model={name: linear, activation: none}")
    assert torch.equal(kept(run()), kept(other))


def test_no_party_is_waited_for() -> None:
    """Every message to and from party2 takes an hour, and the rest of a round no time."""
    outcome = run("federation.absence=wait", delay=lambda sender, to, _: 3600.0 if "party2" in (sender, to) else 0.0)
    assert outcome.seconds < 1 and not outcome.of_kind("missing") and losses(outcome) == losses(run())


def test_it_may_stop_early() -> None:
    outcome = run("federation.rounds=300", "federation.stop.patience=2")
    assert len(losses(outcome)) < 300 and outcome.of_kind("stopped")


def test_a_budget_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^federation\.privacy: in local nothing leaves a party"):
        run("federation.privacy={clip: 1, epsilon: 8}")
