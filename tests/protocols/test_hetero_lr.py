"""Linear models over parties against scikit-learn on the joined columns, and members that depart from the protocol."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from colonnade.client.protocols.hetero_lr import model_of
from colonnade.common.config.members import Config
from colonnade.common.contracts.regression import Direction, Products, Step
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.data.columns.scale import Columns, Scaler
from colonnade.common.errors import ConfigError, ContractError, DataError, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.run.state import State
from colonnade.simulation.federation import Outcome, Simulation


def config(*sets: str, name: str = "breast_cancer", stop: Any = "none", **protocol: Any) -> Config:
    outputs = {"task": "regression"} if name == "diabetes" else {"classes": {"breast_cancer": 2, "wine": 3}[name]}
    tree: dict[str, Any] = {
        "federation": {
            "id": "linear", "parties": 3, "rounds": 80, "batch": 64, "seed": 0, **outputs,
            "protocol": {"name": "hetero_lr", **protocol}, "evaluate": {"every": 80},
        },
        "server": {"labels": {"source": "sklearn", "name": name}},
        "every_party": {"data": {"source": "sklearn", "name": name, "split": "columns"}},
    }  # fmt: skip
    if stop is not None:
        tree["federation"]["stop"] = stop
    return parse(tree, sets)


def run(*sets: str, name: str = "breast_cancer", more: dict[str, Any] | None = None, **protocol: Any) -> Outcome:
    return Simulation(config(*sets, name=name, **protocol), record=True, **(more or {})).run()


FEW = "federation.rows.train=150"
logistic = cache(lambda: run(FEW, more={"save": True}))


def coefficients(outcome: Outcome) -> NDArray[np.float64]:
    """Of all parties' encoded columns, (logits, columns)."""
    return np.concatenate([model_of(ctx).coefficients for ctx in outcome.clients.values()]).T


def joined(outcome: Outcome) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Columns and labels of the training rows."""
    train = outcome.server.schedule.partition.train
    columns = [ctx.features[train].flatten(1).double().numpy() for ctx in outcome.clients.values()]
    return np.concatenate(columns, axis=1), outcome.server.labels[train].numpy()


def test_a_logistic_regression_is_scikit_learns() -> None:
    x, y = joined(logistic())
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(coefficients(logistic()), theirs.coef_, atol=1e-3)
    assert logistic().server.round < 80, "it converges"
    assert logistic().server.metrics["test_accuracy"] > 0.9


def test_several_classes_are_scikit_learns_multinomial_regression() -> None:
    outcome = run(name="wine", c=0.5)
    x, y = joined(outcome)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(coefficients(outcome), theirs.coef_, atol=1e-3)


def test_a_regression_is_scikit_learns_ridge() -> None:
    outcome = run(FEW, name="diabetes", c=0.1)
    x, y = joined(outcome)
    theirs = Ridge(alpha=10.0).fit(x, y)
    np.testing.assert_allclose(coefficients(outcome), theirs.coef_.reshape(1, -1), atol=1e-3)


def test_sums_in_the_clear_give_the_same_coefficients() -> None:
    np.testing.assert_allclose(coefficients(run(FEW, aggregate="clear")), coefficients(logistic()), atol=1e-4)


def test_weights_of_classes_and_rows_weigh_the_loss(tmp_path: Path) -> None:
    labels = load_breast_cancer().target
    weights = np.random.default_rng(0).choice([0, 0.5, 1, 4], len(labels))
    np.savetxt(tmp_path / "y.csv", np.c_[labels, weights], fmt="%g", delimiter=",", header="y,w", comments="")
    given = f"server.labels={{source: csv, path: {tmp_path}/y.csv, label: y, weight: w}}"
    outcome = run("server.class_weights=[3.0, 1.0]", given, FEW)
    x, y = joined(outcome)
    theirs = LogisticRegression(C=1.0, class_weight={0: 3.0, 1: 1.0}, tol=1e-10, max_iter=1000)
    theirs.fit(x, y, sample_weight=weights[outcome.server.schedule.partition.train.numpy()])
    np.testing.assert_allclose(coefficients(outcome), theirs.coef_, atol=2e-3)


def test_a_run_goes_on_from_a_checkpoint_to_the_same_coefficients() -> None:
    whole = logistic()
    late = whole.server.round - 4
    rest = run(FEW, more={"start": (late, whole.saved[late])})
    assert np.array_equal(coefficients(rest), coefficients(whole))
    assert rest.server.metrics == whole.server.metrics


def test_a_party_predicts_what_it_added_in_training() -> None:
    server = logistic().server
    parts = [
        model_of(ctx).of_rows(ctx.features, torch.arange(len(server.labels))) for ctx in logistic().clients.values()
    ]
    np.testing.assert_allclose(sum(parts).numpy(), server.state["scores"].numpy(), atol=1e-4)


def test_a_party_predicts_rows_of_another_table() -> None:
    ctx = logistic().clients["party1"]
    few = Columns(ctx.features[torch.arange(5)], Scaler.none())
    restored = replace(ctx, features=few, state=State(ctx.state.capture()))
    here = model_of(restored).of_rows(few, torch.arange(5))
    assert torch.equal(here, model_of(ctx).of_rows(ctx.features, torch.arange(5)))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("federation.participation=0.5",), "federation.participation"),
        (
            ("federation.privacy={mechanism: gaussian, clip: 1, noise_multiplier: 1, delta: 1e-5}",),
            "federation.privacy",
        ),
        (("federation.compress.up={form: int8}",), "federation.compress"),
        (("federation.protocol.c=0",), "c = 0"),
    ],
)
def test_what_a_descent_over_all_rows_does_not_go_with_is_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(*sets)


def test_the_model_is_the_last_rounds_unless_a_stop_is_asked_for() -> None:
    assert config(stop=None).federation.stop is None
    assert config(stop={"patience": 3}).federation.stop is not None


def test_separated_classes_without_a_penalty_are_named() -> None:
    with pytest.raises(DataError, match="separates the classes"):
        run(name="wine", c="none")


def scripted(answer: Any) -> Any:
    async def side(ctx: Any, clients: Cohort, cfg: Any) -> None:
        from colonnade.server.protocols.hetero_lr import serve

        await serve(ctx, Changed(clients, answer), cfg)

    return side


class Changed:
    """The server's links, but for messages that a test changes."""

    def __init__(self, clients: Cohort, change: Any) -> None:
        self._clients, self._change = clients, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Any:
        return iter(self._clients)

    def __getitem__(self, name: str) -> Any:
        return self._clients[name]

    async def broadcast(self, message: Any) -> None:
        await self._clients.broadcast(self._change(message))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda m: Direction(m.round, m.steps + 1, m.coefficients) if isinstance(m, Direction) else m,
            r"Direction\.steps",
        ),
        (lambda m: Step(m.round, -m.step) if isinstance(m, Step) else m, r"Step\.step"),
        (lambda m: Step(m.round, 0 * m.step) if isinstance(m, Step) else m, r"Step\.step"),
    ],
)
def test_a_server_that_steps_otherwise_is_refused(change: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        run(more={"instead": {"server": scripted(change)}})


def test_sums_that_were_clipped_end_the_run() -> None:
    with pytest.raises(InputError, match=r"clipped to federation\.blinding\.bound"):
        run("federation.blinding.bound=0.01")


def test_messages_of_a_round_are_those_of_the_box() -> None:
    kinds = [type(message).__name__ for _, to, message in logistic().messages if message.round == 3 and to != "server"]
    assert set(kinds) >= {"Masks", "Vectors", "OpenedSums", "Direction", "Step", "Members"}
    assert not any(isinstance(message, Products) for _, _, message in logistic().messages)


def of_tables(
    folder: Path,
    parts: list[NDArray[np.float64]],
    y: NDArray[Any],
    c: Any = 1.0,
    start: Any = (0, {}),
    **federation: Any,
) -> Outcome:
    """A run of parties p0, p1, .. with columns a, b, .. each, and labels that are the server's."""
    names = [f"p{place}" for place in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        header = ",".join("abcdefghijklm"[: part.shape[1]])
        np.savetxt(folder / f"{name}.csv", part, delimiter=",", header=header, comments="")
    np.savetxt(folder / "y.csv", y, header="y", comments="", fmt="%.17g")
    tree = {
        "federation": {
            "id": "tables", "parties": dict.fromkeys(names, ""), "rounds": 60, "batch": 300, "seed": 0, "stop": "none",
            "protocol": {"name": "hetero_lr", "c": c}, "evaluate": {"every": 60}, **federation,
        },
        "server": {"labels": {"source": "csv", "path": "y.csv", "label": "y"}},
        "parties": {name: {"data": {"source": "csv", "path": f"{name}.csv"}} for name in names},
    }  # fmt: skip
    return Simulation(parse(tree, ()), base=folder, start=start, save=True).run()


def test_counts_are_a_poisson_regression(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(300, 6))
    y = draws.poisson(np.exp(x @ [0.5, -0.3, 0.2, 0.0, 0.4, -0.2] + 1))
    outcome = of_tables(tmp_path, np.split(x, 3, axis=1), y, 0.5, task="regression", loss="poisson")
    ours, counted = joined(outcome)
    theirs = PoissonRegressor(alpha=1 / (0.5 * len(ours)), tol=1e-10, max_iter=1000).fit(ours, counted.ravel())
    np.testing.assert_allclose(coefficients(outcome)[0], theirs.coef_, atol=1e-3)


@pytest.mark.parametrize("c", [100.0, "none"])
def test_numbers_without_noise_are_fitted_exactly(tmp_path: Path, c: Any) -> None:
    """No loss is too small for a regression of numbers."""
    x = np.random.default_rng(2).normal(size=(200, 3))
    outcome = of_tables(tmp_path, np.split(x, 3, axis=1), x @ [1.0, -2.0, 0.5], c, task="regression")
    assert outcome.server.metrics["test_r2"] > 0.9999


@pytest.mark.parametrize("c", [1.0, "none"])
def test_columns_that_are_sums_of_others_are_penalised_or_left_out_by_name(tmp_path: Path, c: Any) -> None:
    """One party has a column twice, and one that is constant."""
    draws = np.random.default_rng(1)
    x = draws.normal(size=(300, 3))
    y = (x.sum(1) + draws.normal(size=300) > 0).astype(int)
    parts = [np.c_[x[:, 0], x[:, 0], np.ones(300)], x[:, 1:2], x[:, 2:]]
    outcome = of_tables(tmp_path, parts, y, c, classes=2)
    warned = [e["reason"] for e in outcome.of_kind("warning") if e["party"] == "p0"]
    assert any("columns b, c are sums of others" in reason for reason in warned) is (c == "none"), warned
    ours, bought = joined(outcome)
    used = [0, 3, 4] if c == "none" else [0, 1, 2, 3, 4]
    theirs = LogisticRegression(C=np.inf if c == "none" else c, tol=1e-10, max_iter=1000).fit(ours[:, used], bought)
    np.testing.assert_allclose(coefficients(outcome)[:, used], theirs.coef_, atol=1e-3)
    assert not coefficients(outcome)[:, np.setdiff1d(range(5), used)].any()


def test_fewer_rows_than_columns_need_a_penalty(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    x, y = draws.normal(size=(30, 36)), np.tile([0, 1], 15)
    outcome = of_tables(tmp_path, np.split(x, 3, axis=1), y, 1.0, classes=2)
    ours, told = joined(outcome)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(ours, told)
    np.testing.assert_allclose(coefficients(outcome), theirs.coef_, atol=1e-3)
    with pytest.raises(DataError, match="separates the classes") as refused:
        of_tables(tmp_path, np.split(x, 3, axis=1), y, "none", classes=2)
    assert "federation.protocol.c" in str(refused.value.hint)


def test_missing_numbers_and_parties_without_a_column_that_varies_are_refused(tmp_path: Path) -> None:
    y, x = np.tile([0, 1], 30), np.random.default_rng(4).normal(size=(60, 6))
    parts = np.split(x, 3, axis=1)
    parts[1][7, 1] = np.nan
    with pytest.raises(DataError, match=r"p1\.csv, line 9, column 'b': the value is missing"):
        of_tables(tmp_path, parts, y, 1.0, classes=2)
    parts[1] = np.ones((60, 2))
    with pytest.raises(DataError, match="no column varies"):
        of_tables(tmp_path, parts, y, "none", classes=2)


ERRORS = {"name": "hetero_lr", "c": "none", "errors": True, "aggregate": "clear"}


@pytest.mark.parametrize("parties", [1, 3])
def test_standard_errors_are_those_of_the_inverse_hessian(tmp_path: Path, parties: int) -> None:
    """That is statsmodels' covariance. Of several parties they are close to it, since their columns are uncorrelated;
    and a run that is resumed in its last round has them too.
    """
    draws = np.random.default_rng(5)
    x = np.c_[draws.normal(size=(1500, 3)), draws.integers(0, 2, (1500, 3))]
    y = (x @ [1.0, -0.5, 0.0, 1.0, 0.3, 0.0] + draws.logistic(size=1500) > 0.5).astype(int)
    parts = np.split(x, parties, axis=1)
    outcome = of_tables(tmp_path, parts, y, classes=2, protocol=ERRORS)
    ours, _ = joined(outcome)
    z, b = np.c_[np.ones(len(ours)), ours - ours.mean(axis=0)], coefficients(outcome)[0]
    p = 1 / (1 + np.exp(-z @ np.r_[outcome.server.state["start"].numpy(), b]))
    theirs = np.sqrt(np.linalg.inv(z.T @ (z * (p * (1 - p))[:, None])).diagonal()[1:])
    found, told = standard_errors(outcome)
    np.testing.assert_allclose(found, theirs, rtol=2e-4 if parties == 1 else 0.03)
    np.testing.assert_allclose(told, 2 * norm.sf(np.abs(b / found)), rtol=1e-6)
    assert told[0] < 1e-6 and told[2] > 0.01
    before = outcome.server.round - 1
    rest = of_tables(tmp_path, parts, y, classes=2, protocol=ERRORS, start=(before, outcome.saved[before]))
    assert np.array_equal(standard_errors(rest)[0], found)


def test_standard_errors_of_counts(tmp_path: Path) -> None:
    draws = np.random.default_rng(6)
    x = draws.normal(size=(1200, 2))
    y = draws.poisson(np.exp(x @ [0.4, -0.2]))
    outcome = of_tables(tmp_path, [x], y, task="regression", loss="poisson", protocol=ERRORS)
    ours, _ = joined(outcome)
    z = np.c_[np.ones(len(ours)), ours - ours.mean(axis=0)]
    mean = np.exp(z @ np.r_[outcome.server.state["start"].numpy(), coefficients(outcome)[0]])
    theirs = np.sqrt(np.linalg.inv(z.T @ (z * mean[:, None])).diagonal()[1:])
    np.testing.assert_allclose(standard_errors(outcome)[0], theirs, rtol=1e-3)


def standard_errors(outcome: Outcome) -> list[NDArray[np.float64]]:
    """Standard errors and p-values of all parties' encoded columns."""
    records = [model_of(ctx).record() for ctx in outcome.clients.values()]
    names = ("standard_errors_given_other_parties", "p_values_given_other_parties")
    return [np.concatenate([one[name] for one in records]).astype(float) for name in names]


def test_standard_errors_that_nobody_can_give_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"federation\.protocol\.errors: .* without a penalty"):
        config("federation.protocol.errors=true")
    with pytest.raises(ConfigError, match=r"of two classes or of counts"):
        config("federation.protocol.errors=true", name="wine", c="none")
    x = np.random.default_rng(7).normal(size=(300, 9))
    with pytest.raises(InputError, match=r"of 3 columns need \d+ sums .* 216 training rows of 3 parties at most 7"):
        of_tables(tmp_path, np.split(x, 3, axis=1), np.tile([0, 1], 150), classes=2, protocol=ERRORS)
    run = of_tables(tmp_path, [x[:, :1]], np.tile([0, 1], 150), classes=2, rounds=1, protocol=ERRORS)
    assert any("no standard errors: the run has not converged" in e["reason"] for e in run.of_kind("warning"))
    assert model_of(run.clients["p0"]).record()["p_values_given_other_parties"] == [None]
