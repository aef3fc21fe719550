"""VIMADMM against the augmented Lagrangian that it descends, and against the paper's printed Eq. 8."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.models.losses import CrossEntropy
from colonnade.common.protocols.vimadmm import Update
from colonnade.server.training.fusion.heads import MlpHeads
from tests.support.federation import Outcome, config, federate, first, parameters

pytestmark = pytest.mark.slow

VIMADMM = {"name": "vimadmm", "embedding": 16, "tau": 5}


def run(*sets: str, **how) -> Outcome:
    return federate(config(VIMADMM, "federation.rounds=6", "federation.epochs=0", *sets), **how)


@pytest.mark.parametrize(("rounds", "gamma"), [(5, 1.0), (9, 0.25)], ids=["gamma 1", "gamma 0.25, rows seen twice"])
def test_every_step_descends_its_own_part_of_the_augmented_lagrangian(rounds: int, gamma: float) -> None:
    """The box, written again with autograd on Eq. 4: z by its optimality condition, the rest by gradients."""
    outcome = run(f"federation.rounds={rounds}", f"federation.protocol.dual_step={gamma}")
    rho, loss = 1.0, CrossEntropy()
    server, names = outcome.server, list(outcome.clients)
    models = [first(ctx).model(16) for ctx in outcome.clients.values()]
    steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for m in models]
    duals = torch.zeros(len(server.labels), 10)
    heads: torch.Tensor | None = None
    updates = {name: [m for _, to, m in outcome.messages if to == name] for name in names}
    for t in range(1, rounds + 1):
        rows = server.schedule.batch(t)
        b, y = len(rows), server.labels[rows]
        x = [outcome.clients[name].features[rows] for name in names]
        h = torch.stack([model(part).detach() for model, part in zip(models, x, strict=True)])
        sent = [updates[name][t - 1] for name in names]
        if heads is not None:
            total = torch.bmm(h, heads).sum(0)
            z = sent[0].residual + total - h[0] @ heads[0]
            # Eq. 5: the gradient of l(z, y) - lambda'z + rho/2 |total - z|^2 vanishes at z.
            slope = loss.gradient(z, y) - duals[rows] - rho * (total - z)
            assert slope.abs().max() < 1e-4
            duals[rows] += gamma * rho * (total - z)  # Eq. 6
            assert torch.allclose(sent[0].dual, duals[rows], atol=1e-4)
            w = heads.clone().requires_grad_()
            constraint = torch.bmm(h, w).sum(0) - z
            lagrangian = ((duals[rows] * constraint).sum() + rho / 2 * constraint.square().sum()) / b  # Eq. 7
            lagrangian.backward()
            stepped = heads - 0.1 * (w.grad + 1e-3 * heads)
            assert torch.allclose(stepped, torch.stack([m.head.view(16, 10) for m in sent]), atol=1e-5)
        heads = torch.stack([m.head.view(16, 10) for m in sent])
        duals[rows] = sent[0].dual
        for k, model in enumerate(models):
            for _ in range(5):  # Eq. 9
                logits = model(x[k]) @ sent[k].head.view(16, 10)
                own = (sent[k].dual * logits).sum() + rho / 2 * (sent[k].residual - logits).square().sum()
                steps[k].zero_grad()
                (own / b).backward()
                steps[k].step()
    for model, name in zip(models, names, strict=True):
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-4)


def test_bytes_of_the_papers_table_4() -> None:
    """A batch of 1024 with embeddings of 60: 245,760 up, and 84,320 down, a party and round."""
    h = torch.zeros(1024, 60)
    update = Update(1, torch.zeros(1024, 10), torch.zeros(1024, 10), torch.zeros(600))
    assert h.nbytes == 245_760
    assert update.dual.nbytes + update.residual.nbytes + update.head.nbytes == 84_320


@pytest.mark.parametrize("rho", ["0", "-1"])
def test_rho_must_be_positive(rho: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.protocol\.rho = (0|-1)"):
        config(VIMADMM, f"federation.protocol.rho={rho}")


def test_residuals_from_new_heads_as_printed_diverge_where_those_from_the_old_sum_converge() -> None:
    """Eq. 8 prints the heads after their step. All step at once, so the overshoot comes back M-fold."""
    rates = ("server.optimiser.lr=1.5", "federation.rounds=12", "federation.protocol.tau=20")
    old, new = run(*rates), run("federation.protocol.residual=new", *rates)
    assert old.server.metrics["test_accuracy"] > 0.9
    assert new.server.metrics["test_accuracy"] < 0.3


# Non-linear heads: Section III-B(d).

MLP = ("federation.protocol.head={name: mlp, hidden: 12, dropout: 0.25}",)
DRY = ("federation.protocol.head={name: mlp, hidden: 12, dropout: 0}",)


def network(flat: torch.Tensor) -> torch.nn.Sequential:
    """An MLP head without dropout, (rows, 16) -> (rows, 10), from its parameters as they travel."""
    head = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.ReLU(), torch.nn.Linear(12, 10))
    torch.nn.utils.vector_to_parameters(flat.clone(), head.parameters())
    return head


def test_with_mlp_heads_every_step_descends_its_own_part_too() -> None:
    """The box with g(h; W) for h W, written again with autograd; dropout is 0."""
    outcome = run(*DRY, "federation.rounds=4")
    rho, loss, server, names = 1.0, CrossEntropy(), outcome.server, list(outcome.clients)
    models = [first(ctx).model(16) for ctx in outcome.clients.values()]
    steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3) for m in models]
    duals = torch.zeros(len(server.labels), 10)
    heads: list[torch.nn.Sequential] = []
    for t in range(1, 5):
        rows = server.schedule.batch(t)
        x = [outcome.clients[name].features[rows] for name in names]
        h = [model(part).detach() for model, part in zip(models, x, strict=True)]
        sent = [m for _, to, m in outcome.messages if to != SERVER and m.round == t]
        if heads:
            own = [head(part) for head, part in zip(heads, h, strict=True)]
            total = torch.stack(own).sum(0)
            z = (sent[0].residual + total - own[0]).detach()
            slope = loss.gradient(z, server.labels[rows]) - duals[rows] - rho * (total - z)
            assert slope.abs().max() < 1e-3  # Eq. 5
            duals[rows] += rho * (total - z).detach()  # Eq. 6
            assert torch.allclose(sent[0].dual, duals[rows], atol=1e-3)
            lagrangian = ((duals[rows] * (total - z)).sum() + rho / 2 * (total - z).square().sum()) / len(rows)
            lagrangian.backward()
            for head, update in zip(heads, sent, strict=True):  # Eq. 7
                torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3).step()
                stepped = torch.nn.utils.parameters_to_vector(head.parameters())
                assert torch.allclose(stepped, update.head, atol=1e-5)
        heads = [network(m.head) for m in sent]
        duals[rows] = sent[0].dual
        for k, model in enumerate(models):
            for _ in range(5):  # Eq. 9
                logits = heads[k](model(x[k]))
                part = (sent[k].dual * logits).sum() + rho / 2 * (sent[k].residual - logits).square().sum()
                steps[k].zero_grad()
                (part / len(rows)).backward()
                steps[k].step()
            heads[k].zero_grad()
    for model, name in zip(models, names, strict=True):
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-4)


def test_mlp_heads_start_unlike_each_other_and_travel_whole() -> None:
    outcome = run(*MLP, "federation.rounds=1")
    first = [m for _, _, m in outcome.messages if isinstance(m, Update)]
    size = (16 + 1) * 12 + (12 + 1) * 10
    assert [m.head.shape for m in first] == [(size,)] * 4
    assert len({m.head.sum().item() for m in first}) == 4


def test_dropout_is_drawn_alike_for_equal_seeds_and_matters() -> None:
    one, two, dry = run(*MLP), run(*MLP), run(*DRY)
    for name in one.clients:
        assert torch.equal(parameters(one)[name], parameters(two)[name])
        assert not torch.equal(parameters(one)[name], parameters(dry)[name])
    assert torch.equal(parameters(one)[SERVER], parameters(two)[SERVER])


def test_a_head_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MlpHeads, "flat", lambda self, index: torch.zeros(333 if index == 3 else 334))
    with pytest.raises(ContractError, match=r"server sent Update\.head: expected parameters = 334 in dimension 0"):
        run(*MLP)


@pytest.mark.parametrize("head", ["{name: linear, bias: true}", "{name: mlp, dropout: 1}", "./head.py:Head", "lnear"])
def test_a_head_that_the_federation_cannot_agree_on_is_refused(head: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.protocol\.head"):
        config(VIMADMM, f"federation.protocol.head={head}")
