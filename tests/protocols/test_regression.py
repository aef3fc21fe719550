"""Squared loss in every protocol: the bundled diabetes set, held against least squares on the joined columns."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from sklearn.linear_model import LinearRegression

from common.config import Config, parse
from common.data.bundled import Bundled
from common.errors import CheckpointError
from common.protocols import CONTRACTS
from server.context import ServerContext
from tests.federation import AGREED, NEEDS, federate

DATA: Mapping[str, Any] = {"source": "sklearn", "name": "diabetes", "split": "columns"}
# What a protocol needs to come near least squares in so few rounds; squared loss has no bound on its slopes, so that
# the ADMM protocols want shorter steps for it than for classes.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "czofo": {"protocol": {"delta": "row", "directions": 20, "arrivals": False}, "lr": 0.03},
    "zoo_vfl": {"protocol": {"embedding": 4}, "lr": 0.01, "momentum": 0},
    "syn_zoo_vfl": {"protocol": {"embedding": 4}, "lr": 0.01, "momentum": 0},
    "fedvs": {"protocol": {"stragglers": 0}},
    "vimadmm": {"protocol": {"tau": 5}, "lr": 0.01},
    "vimadmm_j": {"protocol": {"tau": 5}, "lr": 0.01},
    "linear_admm": {"protocol": {"rho": 3.0}},
}


def config(name: str, **federation: Any) -> Config:
    """Diabetes among three parties, by a protocol."""
    way = copy.deepcopy(dict(WAYS.get(name, {})))
    lr = way.pop("lr", 0.05)
    own: dict[str, Any] = {
        "data": dict(DATA),
        "model": "linear",
        "optimiser": {"name": "sgd", "lr": lr, "momentum": way.pop("momentum", 0.9)},
    }
    if name in NEEDS:
        own |= copy.deepcopy(dict(NEEDS[name])) | {"data": {**DATA, "scale": "unit"}}
    server: dict[str, Any] = {"labels": {"source": "sklearn", "name": "diabetes"}, "optimiser": {"lr": lr}}
    if CONTRACTS[name].active:
        server["active"] = {"data": dict(DATA), "model": "linear", "optimiser": {"name": "sgd", "lr": lr}}
    protocol = {"name": name, **({"embedding": 8} if "embedding" in CONTRACTS[name].config.model_fields else {})}
    agreed = {"id": "test", "task": "regression", "parties": 3, "epochs": 15, "batch": 32, "seed": 0}
    agreed |= {
        "protocol": protocol | way.get("protocol", {}),
        **copy.deepcopy(dict(AGREED.get(name, {}))),
        **federation,
    }
    return parse({"federation": agreed, "server": server, "every_party": own})


def least_squares(ctx: ServerContext) -> float:
    """R2 on the test rows of the best that a linear model of all columns can do on the training rows."""
    source = Bundled("diabetes")
    x, y, parts = source._table(), source.targets(), ctx.schedule.partition
    return float(LinearRegression().fit(x[parts.train], y[parts.train]).score(x[parts.test], y[parts.test]))


@pytest.mark.parametrize("name", CONTRACTS)
def test_numbers_are_learned_by_every_protocol(name: str) -> None:
    outcome = federate(config(name))
    metrics = outcome.server.metrics
    bound = least_squares(outcome.server)
    assert 0.3 < bound < 0.6
    far = {"local": 0.35, "zoo_vfl": 0.4, "syn_zoo_vfl": 0.4, "vfl_afe": 0.2, "fedvs": 0.25}.get(name, 0.1)
    assert metrics["test_r2"] > bound - far, metrics
    assert metrics["test_rmse"] < 75 and metrics["test_mae"] < metrics["test_rmse"]
    assert "test_accuracy" not in metrics and "test_auc" not in metrics
