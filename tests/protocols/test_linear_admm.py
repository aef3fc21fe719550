"""Linear ADMM against the optimum of softmax regression on the joined columns, and step by step."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from colonnade.client.protocols.linear_admm import Ridge
from colonnade.common.errors import ConfigError
from colonnade.common.models.losses import CrossEntropy
from colonnade.common.protocols.linear_admm import Logits, Update
from tests.support.federation import Outcome, config, federate

pytestmark = pytest.mark.slow

LINEAR = {"name": "linear_admm"}
EVERY_ROW = "federation.batch=1294"
LOSS = CrossEntropy()


def run(*sets: str, **how) -> Outcome:
    return federate(config(LINEAR, "federation.rounds=6", "federation.epochs=0", *sets), **how)


def objective(x: torch.Tensor, weights: torch.Tensor, y: torch.Tensor, beta: float) -> float:
    """1/b sum_j l(x_j W, y_j) + beta/2 |W|^2."""
    return (LOSS.value(x @ weights, y).mean() + beta / 2 * weights.square().sum()).item()


def joined(outcome: Outcome, rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([ctx.features[rows].flatten(1) for ctx in outcome.clients.values()], dim=1)


def weights(outcome: Outcome) -> torch.Tensor:
    """W_1 .. W_M one below the other, (columns, classes)."""
    return torch.cat([ctx.state["weights"] for ctx in outcome.clients.values()])


def test_with_all_rows_in_a_batch_it_converges_to_the_joint_optimum() -> None:
    """scikit-learn's logistic regression on the joined columns is the oracle."""
    sets = ("federation.protocol.rho=0.01", "federation.rounds=120", "federation.evaluate.every=1000")
    outcome = run(EVERY_ROW, *sets)
    server, beta = outcome.server, 0.001
    rows = server.schedule.batch(1)
    x, y = joined(outcome, rows), server.labels[rows]
    oracle = LogisticRegression(C=1 / (beta * len(rows)), fit_intercept=False, tol=1e-8, solver="newton-cg")
    best = torch.from_numpy(oracle.fit(x.double().numpy(), y.numpy()).coef_.T).float()
    best = best - best.mean(1, keepdim=True)
    found = weights(outcome)
    gap = objective(x, found, y, beta) - objective(x, best, y, beta)
    assert -1e-5 < gap < 1e-3
    assert (found - best).norm() < 0.1 * best.norm()
    test = server.schedule.partition.test
    assert abs(server.metrics["test_accuracy"] - oracle.score(joined(outcome, test), server.labels[test])) < 0.01


def test_every_step_solves_its_own_part() -> None:
    """The box, written again: z by its optimality condition, the models by normal equations."""
    outcome = run("federation.rounds=7")
    rho, beta, server = 0.03, 0.001, outcome.server
    parties = [ctx.features for ctx in outcome.clients.values()]
    models = [torch.zeros(16, 10) for _ in parties]
    duals = torch.zeros(len(server.labels), 10)
    for t in range(1, 8):
        rows = server.schedule.batch(t)
        said = [m.o for _, _, m in outcome.messages if isinstance(m, Logits) and m.round == t]
        g, *others = [m.g for _, _, m in outcome.messages if isinstance(m, Update) and m.round == t]
        assert len(others) == 3 and all(torch.equal(g, other) for other in others)
        inputs = [features[rows].flatten(1) for features in parties]
        for o, x, w in zip(said, inputs, models, strict=True):
            assert torch.allclose(o, x @ w, atol=1e-3)
        step = (len(rows) * g - duals[rows]) / 2  # rho (sum o - z), which step 3 adds and step 4 adds again
        duals[rows] += step
        z = torch.stack(said).sum(0) - step / rho
        assert torch.allclose(LOSS.gradient(z, server.labels[rows]), duals[rows], atol=1e-3)
        models = [_normal_equations(x, w, g, 4 * rho, beta) for x, w in zip(inputs, models, strict=True)]


def _normal_equations(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, sigma: float, beta: float) -> torch.Tensor:
    x, w, g = x.double(), w.double(), g.double()
    pull = sigma / len(x) * x.t() @ x
    return torch.linalg.solve(pull + beta * torch.eye(len(w)), pull @ w - x.t() @ g).float()


def test_the_closed_form_is_where_the_gradient_vanishes() -> None:
    draws = torch.Generator().manual_seed(0)
    inputs, before, g = (torch.randn(size, generator=draws) for size in ((50, 7), (7, 3), (50, 3)))
    inputs[:, 3] = inputs[:, 2]  # columns that repeat each other
    sigma, beta = 0.4, 0.01
    w = Ridge(inputs, sigma, beta).solve(before, g).requires_grad_()
    part = beta / 2 * w.square().sum() + (g * (inputs @ w)).sum()
    part = part + sigma / 100 * (inputs @ (w - before)).square().sum()
    part.backward()
    assert w.grad is not None and w.grad.abs().max() < 1e-5


@pytest.mark.parametrize("missing", ["zero", "last"])
def test_a_straggler_is_missed_and_catches_up(missing: str) -> None:
    def slow(sender: str, _to: str, item: object) -> float:
        return 5.0 if sender == "party2" and isinstance(item, Logits) and item.round % 10 == 1 else 0.5

    sets = ("federation.quorum={need: 3, grace: 0.2}", "federation.rounds=60", f"federation.protocol.missing={missing}")
    outcome = run(EVERY_ROW, *sets, delay=slow)
    missed = [event["round"] for event in outcome.of_kind("missing")]
    assert missed and missed[0] == 1 and max(missed) < 60
    assert outcome.late["party2"] >= 1
    assert outcome.server.metrics["test_accuracy"] > 0.9


@pytest.mark.parametrize("key", ["rho", "beta"])
def test_rho_and_beta_must_be_positive(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"federation\.protocol\.{key} = 0"):
        config(LINEAR, f"federation.protocol.{key}=0")
