"""VIMADMM-J against the augmented Lagrangian that it descends."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.aggregation.messages import BLINDED
from colonnade.common.errors import ConfigError
from colonnade.common.models.heads import xavier
from colonnade.common.models.losses import CrossEntropy
from colonnade.common.protocols.vimadmm_j import CONTRACT, Logits, Update
from tests.support.federation import Outcome, config, federate, first, parameters

pytestmark = pytest.mark.slow

VIMADMM_J = {"name": "vimadmm_j", "embedding": 16, "tau": 5}


def run(*sets: str, **how) -> Outcome:
    return federate(config(VIMADMM_J, "federation.rounds=6", "federation.epochs=0", *sets), **how)


@pytest.mark.parametrize(("rounds", "gamma"), [(4, 1.0), (8, 0.25)], ids=["gamma 1", "gamma 0.25, rows seen twice"])
def test_every_step_descends_its_own_part_of_the_augmented_lagrangian(rounds: int, gamma: float) -> None:
    """The box, written again with autograd: z by its optimality condition, heads and models by gradients."""
    outcome = run(f"federation.rounds={rounds}", f"federation.protocol.dual_step={gamma}")
    rho, loss = 1.0, CrossEntropy()
    server, names = outcome.server, list(outcome.clients)
    models = [first(ctx).model(16) for ctx in outcome.clients.values()]
    heads = [xavier(16, 10, ctx.draws.generator("head")).requires_grad_() for ctx in outcome.clients.values()]
    sgd = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}
    model_steps = [torch.optim.SGD(model.parameters(), **sgd) for model in models]
    head_steps = [torch.optim.SGD([head], lr=0.03, weight_decay=1e-3) for head in heads]
    duals = torch.zeros(len(server.labels), 10)
    logits_of = {n: [m for sender, _, m in outcome.messages if sender == n and isinstance(m, Logits)] for n in names}
    heard = {name: [m for _, to, m in outcome.messages if to == name] for name in names}
    for t in range(1, rounds + 1):
        rows = server.schedule.batch(t)
        x = [outcome.clients[name].features[rows] for name in names]
        own = [(model(part) @ head).detach() for model, part, head in zip(models, x, heads, strict=True)]
        for name, o in zip(names, own, strict=True):
            assert torch.allclose(logits_of[name][t - 1].o, o, atol=1e-4)
        total = torch.stack(own).sum(0)
        updates = [heard[name][t - 1] for name in names]
        z = updates[0].residual + total - own[0]  # Eq. 21
        # Eq. 19: the gradient of l(z, y) - lambda'z + rho/2 |total - z|^2 vanishes at z.
        slope = loss.gradient(z, server.labels[rows]) - duals[rows] - rho * (total - z)
        assert slope.abs().max() < 1e-3
        duals[rows] += gamma * rho * (total - z)  # Eq. 20
        for k, update in enumerate(updates):
            assert torch.allclose(update.dual, duals[rows], atol=1e-3)
            assert torch.allclose(update.residual, z - total + own[k], atol=1e-3)
            for _ in range(5):
                for step in (head_steps[k], model_steps[k]):  # Eq. 22, then Eq. 23
                    logits = models[k](x[k]) @ heads[k]
                    part = (update.dual * logits).sum() + rho / 2 * (update.residual - logits).square().sum()
                    head_steps[k].zero_grad()
                    model_steps[k].zero_grad()
                    (part / len(rows)).backward()
                    step.step()
        duals[rows] = updates[0].dual
    for model, head, name in zip(models, heads, names, strict=True):
        ours = torch.cat([p.flatten() for p in model.parameters()])
        assert torch.allclose(ours, parameters(outcome)[name], atol=1e-4)
        assert torch.allclose(head, outcome.clients[name].state["head"], atol=1e-4)


def test_one_tensor_down_does_the_same_with_half_the_bytes() -> None:
    """Also under noise and with a party missing: the embeddings as received by the server count."""
    for sets in (
        (),
        ("federation.privacy={clip: 3, noise_multiplier: 0.1, seeded: true}",),
        ("federation.participation=0.5", "federation.protocol.missing=last"),
    ):
        one, two = run(*sets), run("federation.protocol.update=signal", *sets)
        for name, values in parameters(one).items():
            torch.testing.assert_close(parameters(two)[name], values, atol=1e-4, rtol=1e-3)
        kinds = {type(m) for _, _, m in two.messages}
        assert kinds == set(CONTRACT.messages) - set(BLINDED) - {Update}
        assert two.payload[0] == one.payload[0] and two.payload[1] == one.payload[1] / 2


def test_rho_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"federation\.protocol\.rho = 0"):
        config(VIMADMM_J, "federation.protocol.rho=0")
