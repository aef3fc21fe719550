"""Squared loss in every kind of protocol: the bundled diabetes set, against least squares on the joined columns."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from sklearn.linear_model import LinearRegression

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.known_sets.bundled import Bundled
from colonnade.common.errors import CheckpointError, ConfigError
from colonnade.common.parsing.file import parse
from colonnade.server.training.context import ServerContext
from tests.support.federation import AGREED, NEEDS, federate

pytestmark = pytest.mark.slow

DATA: Mapping[str, Any] = {"source": "sklearn", "name": "diabetes", "split": "columns"}
# Settings that come near least squares in so few rounds; squared loss has no bound on its slopes, so that
# the ADMM protocols want shorter steps for it than for classes.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "c_vfl": {"protocol": {"local_steps": 3}},
    "czofo": {"protocol": {"delta": "row", "directions": 20, "arrivals": False}, "lr": 0.03},
    "fedvs": {"protocol": {"stragglers": 0}},
    "vimadmm": {"protocol": {"tau": 5}, "lr": 0.01},
    "linear_admm": {"protocol": {"rho": 3.0}},
}


def config(name: str, **federation: Any) -> Config:
    """Diabetes among three parties, by a protocol."""
    way = copy.deepcopy(dict(WAYS.get(name, {})))
    lr = way.pop("lr", 0.05)
    optimiser = {"name": "sgd", "lr": lr, "momentum": way.pop("momentum", 0.9)}
    own: dict[str, Any] = {"data": dict(DATA), "model": "linear", "optimiser": optimiser}
    if name in NEEDS:
        own |= copy.deepcopy(dict(NEEDS[name]))
    server: dict[str, Any] = {"labels": {"source": "sklearn", "name": "diabetes"}, "optimiser": {"lr": lr}}
    if CONTRACTS[name].active:
        server["active"] = {"data": dict(DATA), "model": "linear", "optimiser": {"name": "sgd", "lr": lr}}
    protocol = {"name": name, **({"embedding": 8} if "embedding" in CONTRACTS[name].config.model_fields else {})}
    agreed = {"id": "test", "task": "regression", "parties": 3, "epochs": 8, "batch": 64, "seed": 0}
    agreed |= {
        "protocol": protocol | way.get("protocol", {}),
        **copy.deepcopy(dict(AGREED.get(name, {}))),
        **federation,
    }
    return parse({"federation": agreed, "server": server, "every_party": own})


def least_squares(ctx: ServerContext) -> float:
    """R2 on the test rows of the least squares fit of all columns on the training rows."""
    source = Bundled("diabetes")
    x, y, parts = source.table(), source.targets(), ctx.schedule.partition
    return float(LinearRegression().fit(x[parts.train], y[parts.train]).score(x[parts.test], y[parts.test]))


@pytest.mark.parametrize(
    "name", ["split", "fdml", "czofo", "vimadmm", "linear_admm", "fedvs", "vfedmh", "agg_vfl", "local"]
)
def test_numbers_are_learned_by_every_kind_of_protocol(name: str) -> None:
    outcome = federate(config(name))
    metrics = outcome.server.metrics
    bound = least_squares(outcome.server)
    assert 0.3 < bound < 0.6
    far = 0.35 if name == "local" else 0.15
    assert metrics["test_r2"] > bound - far, metrics
    assert metrics["test_rmse"] < 75 and metrics["test_mae"] < metrics["test_rmse"]
    assert "test_accuracy" not in metrics and "test_auc" not in metrics


@pytest.mark.parametrize("name", ["fdml", "c_vfl"])
def test_parties_that_compute_the_loss_are_sent_the_targets_unchanged(name: str) -> None:
    outcome = federate(config(name, epochs=1, compress={"down": 8}))
    ctx = outcome.server
    sent = [message for sender, to, message in outcome.messages if (sender, to) == (SERVER, "party1")]
    assert {type(message).__name__ for message in sent} >= {"Targets"}
    for message in (message for message in sent if type(message).__name__ == "Targets"):
        assert message.y.equal(ctx.labels[ctx.schedule.batch(message.round)].double())


def test_the_summary_has_the_scale_and_the_best_is_the_least() -> None:
    outcome = federate(config("split", stop={"patience": 50}))
    ctx = outcome.server
    assert ctx.scale is not None and ctx.state["targets"] == ctx.scale.record()
    found = [event["val_rmse"] for event in outcome.of_kind("evaluation") if event["part"] == "validation"]
    best = ctx.best.summary(0)
    assert best is not None and best["val_rmse"] == min(found) and best["round"] > 0


def test_a_run_does_not_go_on_with_other_numbers() -> None:
    ctx = federate(config("split", epochs=1)).server
    snapshot = ctx.state.capture()
    ctx.restore(3, snapshot)
    ctx.confirm()
    snapshot.values["targets"]["items"][0][1]["list"][0] += 1.0
    ctx.restore(3, snapshot)
    with pytest.raises(CheckpointError, match="not those that the run began with"):
        ctx.confirm()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["federation.classes=2"], "federation.classes with federation.task = regression"),
        (["federation.task=classification"], "federation.classes: missing"),
        (["federation.task=classification", "federation.classes=3", "federation.targets=1"], "federation.targets = 1"),
        (["server.privacy.labels={epsilon: 1}"], "server.privacy.labels with federation.task = regression"),
        (["server.class_weights=balanced"], "server.class_weights with federation.task = regression"),
        (["federation.adjust={contrastive: 1}"], "federation.adjust.contrastive with federation.task = regression"),
        (["federation.protocol.name=vafl",
          "server.privacy.answers={clip: 1, head_clip: 1, noise_multiplier: 1, delta: 1e-5}"],
         "server.privacy.answers with federation.task = regression"),
    ],
)  # fmt: skip
def test_options_that_conflict_with_regression_are_refused(sets: list[str], message: str) -> None:
    tree = config("split").model_dump(mode="json", exclude_none=True)
    del tree["federation"]["classes"]
    with pytest.raises(ConfigError, match=message):
        parse(tree, tuple(sets))
