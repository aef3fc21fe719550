"""One global embedding against autograd on the joint model: all parties together, and as they come."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ContractError
from colonnade.common.protocols.split_avg import AverageGradient, Embedding, Evaluation, Gradient
from tests.support.federation import Outcome, config, federate, first, late, parameters, uneven

pytestmark = pytest.mark.slow

AVERAGE = {"name": "split_avg", "embedding": 16}
POLYNOMIAL = "every_party.model={name: polynomial, layers: 2}"
COME = "federation.protocol.arrivals=true"
COMBINE = {
    "average": lambda h: sum(h) / len(h),
    "max": lambda h: torch.stack(h).max(0).values,
    "concatenate": lambda h: torch.cat(h, 1),
}


def run(*sets: str, combine: str = "average", **how) -> Outcome:
    sets = ("federation.rounds=8", "federation.epochs=0", POLYNOMIAL, "every_party.optimiser.lr=0.05", *sets)
    return federate(config({**AVERAGE, "combine": combine}, *sets), **how)


def beginning(outcome: Outcome, combine: str = "average") -> SimpleNamespace:
    """Everything as it was before the first round, with optimisers as the configuration has them."""
    fresh = run("federation.rounds=1", "server.optimiser.lr=1e-12", combine=combine)
    models = {name: first(ctx).model(16) for name, ctx in outcome.clients.items()}
    head = copy.deepcopy(fresh.server.state["head"])
    sgd = {name: torch.optim.SGD(m.parameters(), 0.05, 0.9, weight_decay=1e-3) for name, m in models.items()}
    top = torch.optim.SGD(head.parameters(), 0.1, weight_decay=1e-3)
    return SimpleNamespace(names=list(models), models=models, head=head, sgd=sgd, top=top)


def embeddings(joint: SimpleNamespace, outcome: Outcome, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: model(outcome.clients[name].features[rows]) for name, model in joint.models.items()}


def learn(joint: SimpleNamespace, outcome: Outcome, rows: torch.Tensor, whole: torch.Tensor, who: list[str]) -> float:
    """One step of the head and of these parties on the joint model."""
    loss = functional.cross_entropy(joint.head(whole), outcome.server.labels[rows])
    steps = [joint.top, *(joint.sgd[name] for name in who)]
    for step in steps:
        step.zero_grad()
    loss.backward()
    for step in steps:
        step.step()
    return loss.item()


def assert_equal_in_the_end(joint: SimpleNamespace, outcome: Outcome) -> None:
    for name, model in joint.models.items():
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-5)
    assert torch.allclose(joint.head.weight.flatten(), parameters(outcome)[SERVER], atol=1e-5)


@pytest.mark.parametrize("combine", COMBINE)
def test_together_it_takes_the_steps_of_one_joint_model(combine: str) -> None:
    outcome = run(combine=combine)
    joint = beginning(outcome, combine)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        whole = COMBINE[combine](list(embeddings(joint, outcome, rows).values()))
        assert abs(learn(joint, outcome, rows, whole, joint.names) - event["loss"]) < 1e-5
    assert_equal_in_the_end(joint, outcome)


paced = uneven(Embedding)


def test_as_they_come_every_arrival_is_a_step_with_the_last_embeddings_of_the_others() -> None:
    """Replayed from the order in which the server answered: a table of last embeddings, and autograd."""
    outcome = run(COME, "federation.evaluate.every=8", delay=paced)
    joint = beginning(outcome)
    last = {name: torch.zeros(len(outcome.server.labels), 16) for name in joint.names}
    done, losses = dict.fromkeys(joint.names, 0), []
    for name in (to for _, to, m in outcome.messages if isinstance(m, Gradient | AverageGradient)):
        done[name] += 1
        rows = outcome.server.schedule.batch(done[name])
        h = embeddings(joint, outcome, rows)[name]
        whole = sum(h if other == name else last[other][rows] for other in joint.names) / 4
        last[name][rows] = h.detach()
        losses.append(learn(joint, outcome, rows, whole, [name]))
    for number, event in enumerate(outcome.of_kind("round")):
        assert abs(sum(losses[number * 4 : number * 4 + 4]) / 4 - event["loss"]) < 1e-5
    assert_equal_in_the_end(joint, outcome)
    assert done["party1"] > done["party2"] > done["party4"] >= 1


lost = late("party4")


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("missing", ["leave_out", "zero"])
def test_imputation_of_a_missing_party(combine: str, missing: str) -> None:
    """Left out, the average is over three and the maximum of three; as zeros, both are of four."""
    sets = (f"federation.protocol.missing={missing}", "federation.quorum={need: 3}", "federation.rounds=3")
    outcome = run(*sets, combine=combine, delay=lost)
    joint = beginning(outcome, combine)
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        h = embeddings(joint, outcome, rows)
        h["party4"] = torch.zeros_like(h["party4"])
        count = 3 if missing == "leave_out" and combine != "concatenate" else 4
        whole = COMBINE[combine](list(h.values())[:count])
        assert abs(learn(joint, outcome, rows, whole, joint.names[:3]) - event["loss"]) < 1e-5
    assert {to for sender, to, _ in outcome.messages if sender == SERVER} == {"party1", "party2", "party3"}
    sent = {m.shared for _, _, m in outcome.messages if isinstance(m, Gradient | AverageGradient)}
    assert sent == {count if combine == "average" else 1}
    for part in ("validation", "test"):
        rows = getattr(outcome.server.schedule.partition, part)
        h = embeddings(joint, outcome, rows)
        h["party4"] = torch.zeros_like(h["party4"])
        right = joint.head(COMBINE[combine](list(h.values())[:count])).argmax(1) == outcome.server.labels[rows]
        (event,) = [e for e in outcome.of_kind("evaluation") if e["part"] == part]
        key = "val_accuracy" if part == "validation" else "test_accuracy"
        assert event[key] == pytest.approx(right.double().mean().item(), abs=0.01)


def test_an_evaluation_without_responses_is_of_zeros() -> None:
    def late(_sender: str, _to: str, item: object) -> float:
        return 5.0 if isinstance(item, Evaluation) else 0.1

    outcome = run("federation.quorum={deadline: 1}", "federation.rounds=1", delay=late)
    tested = outcome.server.labels[outcome.server.schedule.partition.test]
    # Without a bias the head gives every class the same score, and the first class is taken.
    assert outcome.server.metrics["test_accuracy"] == pytest.approx((tested == 0).double().mean().item())


def test_an_average_sends_everyone_the_same() -> None:
    outcome = run("federation.rounds=1")
    first, *others = [m.dh for _, _, m in outcome.messages if isinstance(m, AverageGradient)]
    assert len(others) == 3 and all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("kind", [AverageGradient, Gradient])
def test_a_party_refuses_a_share_of_none(monkeypatch: pytest.MonkeyPatch, kind: type[Gradient]) -> None:
    name = f"colonnade.server.protocols.split_avg.{kind.__name__}"
    monkeypatch.setattr(name, lambda t, shared, dh: kind(t, 0, dh))
    with pytest.raises(ContractError, match="shared"):
        run("federation.rounds=1", combine="average" if kind is AverageGradient else "max")
