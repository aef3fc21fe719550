"""C-VFL against autograd: every member descends the joint loss while all others stand still."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.messaging.label_messages import Beliefs, Labels
from colonnade.common.protocols.c_vfl import CONTRACT, Embedding, Head, Other
from tests.support.federation import Outcome, config, federate, first, late, parameters

pytestmark = pytest.mark.slow

C_VFL = {"name": "c_vfl", "embedding": 16, "local_steps": 3}
MLP = "federation.protocol.head={name: mlp, hidden: 12, dropout: 0}"
DIFFER = (
    "every_party.data.split=image_rows",
    "parties.party1={model: lenet, optimiser: {name: adam}}",
    "parties.party2.model=cnn",
    "parties.party3.model={name: linear, activation: relu}",
)
BITS = "federation.compress={up: 4, down: 4}"


def run(*sets: str, **how) -> Outcome:
    return federate(config(C_VFL, "federation.rounds=6", "federation.epochs=0", *sets), **how)


def begun(outcome: Outcome, *sets: str) -> tuple[list[torch.nn.Module], torch.nn.Module]:
    """All members' models before the first round."""
    still = run(*sets, "federation.rounds=1", "server.optimiser={name: sgd, lr: 1.0e-12, weight_decay: 0}")
    return [first(ctx).model(16) for ctx in outcome.clients.values()], copy.deepcopy(still.server.state["head"])


def sent(outcome: Outcome, t: int) -> dict[str, torch.Tensor]:
    """The parties' embeddings as the server read them in a round, in the roster's order."""
    came = {sender: m.h for sender, _, m in outcome.messages if isinstance(m, Embedding) and m.round == t}
    return {name: came[name] for name in outcome.clients}


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("sets", [(), (MLP,)], ids=["linear", "mlp"])
def test_members_make_local_steps_while_all_others_stand_still(sets: tuple[str, ...]) -> None:
    """Algorithm 1 in one process, with autograd through the whole joint model for every single step."""
    outcome = run(*sets)
    models, head = begun(outcome, *sets)
    steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for m in models]
    head_step = torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        x, y = [ctx.features[rows] for ctx in outcome.clients.values()], outcome.server.labels[rows]
        old, old_head = copy.deepcopy(models), copy.deepcopy(head)
        stale = [model(part).detach() for model, part in zip(old, x, strict=True)]
        assert abs(functional.cross_entropy(head(torch.cat(stale, 1)), y).item() - event["loss"]) < 1e-5
        for _ in range(3):
            for index, (model, step) in enumerate(zip(models, steps, strict=True)):
                h = [model(x[index]) if place == index else stale[place] for place in range(4)]
                step.zero_grad()
                functional.cross_entropy(old_head(torch.cat(h, 1)), y).backward()
                step.step()
            head_step.zero_grad()
            functional.cross_entropy(head(torch.cat(stale, 1)), y).backward()
            head_step.step()
    for model, values in zip(models, [parameters(outcome)[name] for name in outcome.clients], strict=True):
        assert torch.allclose(flat(model), values, atol=1e-5)
    assert torch.allclose(flat(head), parameters(outcome)[SERVER], atol=1e-5)


def test_one_local_step_is_a_step_of_one_joint_model() -> None:
    """The oracle is autograd on the sum of all members' parts at once."""
    outcome = run("federation.protocol.local_steps=1")
    models, head = begun(outcome)
    joint = [p for m in models for p in m.parameters()]
    step = torch.optim.SGD(joint, lr=0.1, momentum=0.9, weight_decay=1e-3)
    head_step = torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        h = [m(ctx.features[rows]) for m, ctx in zip(models, outcome.clients.values(), strict=True)]
        loss = functional.cross_entropy(head(torch.cat(h, 1)), outcome.server.labels[rows])
        step.zero_grad()
        head_step.zero_grad()
        loss.backward()
        step.step()
        head_step.step()
        assert abs(loss.item() - event["loss"]) < 1e-5
    for model, name in zip(models, outcome.clients, strict=True):
        assert torch.allclose(flat(model), parameters(outcome)[name], atol=1e-6)


@pytest.mark.parametrize("sets", [(), DIFFER], ids=["alike", "models that differ"])
def test_one_local_step_is_split_learning(sets: tuple[str, ...]) -> None:
    one = run("federation.protocol.local_steps=1", *sets)
    other = federate(config({"name": "split", "embedding": 16}, "federation.rounds=6", "federation.epochs=0", *sets))
    assert [e["loss"] for e in one.of_kind("round")] == pytest.approx([e["loss"] for e in other.of_kind("round")])
    for name, values in parameters(one).items():
        assert torch.allclose(values, parameters(other)[name], atol=1e-6)


def test_labels_and_embeddings_are_sent_and_the_run_reports_it() -> None:
    outcome = run()
    (warning,) = outcome.of_kind("warning")
    assert warning["party"] == SERVER and "SHARES LABELS AND EMBEDDINGS" in warning["reason"]
    assert "LABELS" in CONTRACT.sees["party"] and "EMBEDDINGS" in CONTRACT.sees["party"]
    received = [m for _, to, m in outcome.messages if to == "party3" and isinstance(m, Labels)]
    for t, message in enumerate(received, 1):
        assert torch.equal(message.y, outcome.server.labels[outcome.server.schedule.batch(t)])
        others = [m.h for _, to, m in outcome.messages if to == "party3" and isinstance(m, Other) and m.round == t]
        expected = [h for name, h in sent(outcome, t).items() if name != "party3"]
        assert all(torch.equal(one, two) for one, two in zip(others, expected, strict=True))
    assert len(received) == 6


def test_compressed_embeddings_are_passed_on_nearly_unchanged() -> None:
    """Values that are on a scale already stay there; a party's own steps begin at its uncompressed embeddings."""
    outcome = run(BITS)
    for t in range(1, 7):
        received = [m.h for _, to, m in outcome.messages if to == "party1" and isinstance(m, Other) and m.round == t]
        came = [h for name, h in sent(outcome, t).items() if name != "party1"]
        for one, two in zip(received, came, strict=True):
            assert len(one.unique()) <= 16 and (one == two).float().mean() > 0.999
    heads = [m.parameters for _, to, m in outcome.messages if to == "party1" and isinstance(m, Head)]
    assert all(len(head.unique()) <= 16 for head in heads)


def test_a_party_compares_its_fresh_embeddings_with_compressed_ones_of_others() -> None:
    """One compressed round, written again from the messages that party1 was sent."""
    outcome = run(BITS, "federation.rounds=1")
    ctx, model = outcome.clients["party1"], begun(outcome, BITS)[0][0]
    rows = outcome.server.schedule.batch(1)
    received = [m for _, to, m in outcome.messages if to == "party1"]
    others = torch.cat([m.h for m in received if isinstance(m, Other)], 1)
    (weight,) = (m.parameters.view(10, 64) for m in received if isinstance(m, Head))
    step = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for _ in range(3):
        step.zero_grad()
        logits = torch.cat([model(ctx.features[rows]), others], 1) @ weight.t()
        functional.cross_entropy(logits, outcome.server.labels[rows]).backward()
        step.step()
    assert torch.allclose(flat(model), parameters(outcome)["party1"], atol=1e-6)


def test_noisy_labels_are_sent_as_the_servers_posterior() -> None:
    outcome = run("server.privacy.labels={deviation: 1, seeded: true}", "federation.rounds=1")
    received = [m.y for _, to, m in outcome.messages if to == "party1" and isinstance(m, Labels | Beliefs)]
    truth = run("federation.rounds=1").server.labels[outcome.server.schedule.batch(1)]
    assert len(received) == 1 and received[0].dtype == torch.float32 and received[0].shape == (len(truth), 10)
    torch.testing.assert_close(received[0].sum(1), torch.ones(len(truth)))
    assert 0.3 < (received[0].argmax(1) == truth).float().mean() < 0.999


def test_a_missing_party_counts_as_zeros_and_is_sent_nothing() -> None:
    lost = late("party4")
    outcome = run("federation.quorum={need: 3}", "federation.rounds=1", delay=lost)
    received = [(to, m) for sender, to, m in outcome.messages if sender == SERVER]
    assert {to for to, _ in received} == {"party1", "party2", "party3"}
    for party in ("party1", "party2", "party3"):
        *there, last = [m.h for to, m in received if to == party and isinstance(m, Other)]
        assert len(there) == 2 and all(h.any() for h in there) and not last.any()
