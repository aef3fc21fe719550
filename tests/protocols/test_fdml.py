"""FDML against autograd on the loss of the mean of all logits."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.messaging.label_messages import Beliefs, Labels
from colonnade.common.models.heads import xavier
from colonnade.common.privacy.gaussian import through_clip
from colonnade.common.protocols.fdml import CONTRACT, Aggregate, Logits
from tests.support.federation import Outcome, config, federate, first, late

FDML = {"name": "fdml", "embedding": 16}


def run(*sets: str, **how) -> Outcome:
    return federate(config(FDML, "federation.rounds=6", "federation.epochs=0", *sets), **how)


def kept(outcome: Outcome) -> dict[str, torch.Tensor]:
    """Every party's model and head, flat; the server has none."""
    parts = {name: [*ctx.state["model"].parameters(), ctx.state["head"]] for name, ctx in outcome.clients.items()}
    return {name: torch.cat([p.detach().flatten() for p in part]) for name, part in parts.items()}


def test_it_takes_the_steps_of_one_joint_model() -> None:
    """Autograd through the mean of all logits, models and heads alike, is the oracle: M times the loss is descended."""
    outcome = run()
    contexts = list(outcome.clients.values())
    models = [first(ctx).model(16) for ctx in contexts]
    heads = [xavier(16, 10, ctx.draws.generator("head")).requires_grad_() for ctx in contexts]
    steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for m in models]
    steps.append(torch.optim.SGD(heads, lr=0.03, weight_decay=1e-3))
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        own = [m(ctx.features[rows]) @ w for m, ctx, w in zip(models, contexts, heads, strict=True)]
        loss = functional.cross_entropy(torch.stack(own).mean(0), outcome.server.labels[rows])
        for step in steps:
            step.zero_grad()
        (4 * loss).backward()
        for step in steps:
            step.step()
        assert abs(loss.item() - event["loss"]) < 1e-5
    for model, head, values in zip(models, heads, kept(outcome).values(), strict=True):
        joint = torch.cat([p.flatten() for p in [*model.parameters(), head]])
        assert torch.allclose(joint, values, atol=1e-6)


def test_labels_are_sent_and_the_run_reports_it() -> None:
    outcome = run()
    (warning,) = outcome.of_kind("warning")
    assert warning["party"] == SERVER
    assert "LABELS" in CONTRACT.sees["party"]
    received = [m for _, to, m in outcome.messages if to == "party3" and isinstance(m, Labels)]
    for t, message in enumerate(received, 1):
        assert torch.equal(message.y, outcome.server.labels[outcome.server.schedule.batch(t)])
    assert len(received) == 6


def test_with_noisy_labels_parties_are_sent_the_posterior_at_the_mean() -> None:
    outcome = run("server.privacy.labels={deviation: 1, seeded: true}")
    server = outcome.server
    assert server.noisy is not None
    evidence = torch.zeros(len(server.labels), 10)
    evidence[server.schedule.partition.train] = server.noisy.evidence().float()
    means = {m.round: m.o for _, to, m in outcome.messages if to == "party3" and isinstance(m, Aggregate)}
    received = {m.round: m.y for _, to, m in outcome.messages if to == "party3" and isinstance(m, Beliefs)}
    assert received.keys() == means.keys() and len(received) == 6
    for t, beliefs in received.items():
        expected = (means[t] + evidence[server.schedule.batch(t)]).softmax(dim=1)
        torch.testing.assert_close(beliefs, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("own", ["exact", "sent"])
def test_under_noise_a_party_steps_from_its_own_logits_as_they_are_or_from_the_mean_as_it_came(own: str) -> None:
    """The papers' parties take the mean as it came (`sent`); putting the own logits back costs no privacy (`exact`)."""
    noisy = "federation.privacy={clip: 0.1, noise_multiplier: 5, delta: 1.0e-5, seeded: true, evaluate: clean}"
    outcome = run(noisy, "federation.benchmark=true", "federation.rounds=1", f"federation.protocol.own={own}")
    ((name, ctx), *_) = outcome.clients.items()
    model, before = first(ctx).model(16), xavier(16, 10, ctx.draws.generator("head"))
    rows = outcome.server.schedule.batch(1)
    h = model(ctx.features[rows]).detach()
    (sent,) = (m.o for sender, _, m in outcome.messages if sender == name and isinstance(m, Logits))
    (mean,) = (m.o for _, to, m in outcome.messages if to == name and isinstance(m, Aggregate))
    seen = mean - sent / 4 + h @ before / 4 if own == "exact" else mean
    do = (seen.softmax(1) - functional.one_hot(outcome.server.labels[rows], 10)) / len(rows)
    do = do if own == "exact" else through_clip(h @ before, 0.1, do)
    after = before - 0.03 * (h.t() @ do + 1e-3 * before)
    torch.testing.assert_close(ctx.state["head"].detach(), after, atol=1e-6, rtol=1e-4)
    assert (sent - h @ before).norm() > 1


def test_a_missing_party_sends_nothing_and_is_sent_nothing() -> None:
    lost = late("party4")
    outcome = run("federation.quorum={need: 3}", "federation.rounds=1", delay=lost)
    logits = {sender: m.o for sender, _, m in outcome.messages if isinstance(m, Logits)}
    mean = sum(logits[name] for name in ("party1", "party2", "party3")) / 4
    received = {to: m.o for sender, to, m in outcome.messages if sender == SERVER and isinstance(m, Aggregate)}
    assert list(received) == ["party1", "party2", "party3"]
    assert all(torch.allclose(o, mean) for o in received.values())
