"""Class weights: a rare class is found if the server computes the loss; otherwise they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.server.training.classes import balanced
from tests.support.federation import NEEDS, federate

pytestmark = pytest.mark.slow

ROWS, RARE = 600, 0.08


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which one row in twelve is of the second class, and lies among the others."""
    made = tmp_path_factory.mktemp("rare")
    draws = torch.Generator().manual_seed(0)
    y = torch.rand(ROWS, generator=draws) < RARE
    x = torch.randn(ROWS, 6, generator=draws) + 0.8 * y[:, None]
    lines = ["a,b,c,d,e,f", *(",".join(f"{v:.5f}" for v in row) for row in x.tolist())]
    (made / "x.csv").write_text("\n".join(lines) + "\n")
    (made / "y.csv").write_text("\n".join(["y", *(str(int(v)) for v in y)]) + "\n")
    return made


def config(name: str, weights: Any, **federation: Any) -> Config:
    own: dict[str, Any] = {"data": {"source": "csv", "path": "x.csv", "split": "columns"}, "model": "linear"}
    own |= {"optimiser": {"name": "sgd", "lr": 0.05, "momentum": 0.5}, **NEEDS.get(name, {})}
    server: dict[str, Any] = {"labels": {"source": "csv", "path": "y.csv", "label": "y"}, "class_weights": weights}
    server |= {"optimiser": {"name": "sgd", "lr": 0.1}, "head": {"name": "linear", "bias": True}}
    protocol: dict[str, Any] = {"name": name}
    if "embedding" in CONTRACTS[name].config.model_fields:
        protocol["embedding"] = 4
    agreed = {
        "id": "test",
        "protocol": protocol,
        "parties": 2,
        "classes": 2,
        "epochs": 10,
        "batch": 60,
        "seed": 0,
        "stop": "none",
    }
    return parse({"federation": agreed | federation, "server": server, "every_party": own})


def recall(outcome: Any) -> float:
    """Recall of the second class, on the test rows."""
    (_, (missed, found)) = outcome.server.details["test"]["confusion"]
    return float(found / (found + missed))


@pytest.mark.parametrize("name", ["vimadmm", "czofo"])
def test_a_rare_class_is_found_where_classes_weigh_alike(name: str, folder: Path) -> None:
    plain, weighed = (federate(config(name, weights), base=folder) for weights in ("none", "balanced"))
    assert recall(weighed) > recall(plain) + 0.25
    assert weighed.server.metrics["test_auc"] > 0.75


def test_balanced_weights_are_those_of_the_training_rows(folder: Path) -> None:
    by_name = federate(config("split", "balanced", epochs=2), base=folder).server
    of_rows = balanced(by_name.labels[by_name.schedule.partition.train], 2).tolist()
    by_hand = federate(config("split", of_rows, epochs=2), base=folder).server
    assert by_name.metrics == by_hand.metrics
    assert by_name.metrics != federate(config("split", "none", epochs=2), base=folder).server.metrics


def test_evaluations_are_not_weighted(folder: Path) -> None:
    metrics = federate(config("split", [1.0, 40.0], epochs=1), base=folder).server.metrics
    assert metrics["test_loss"] == pytest.approx(metrics["test_log_loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "weights", "server", "message"),
    [
        ("fdml", "balanced", {}, "server.class_weights: in fdml the parties compute the loss themselves"),
        ("c_vfl", [1, 2], {}, "server.class_weights: in c_vfl the parties compute the loss themselves"),
        ("split", [1, 2, 3], {}, "server.class_weights has 3 weights for 2 classes"),
        ("split", [1, 0], {}, r"server.class_weights.* expected more than 0"),
        ("split", "balance", {}, "server.class_weights = 'balance'"),
        ("split", "balanced", {"labels": {"epsilon": 1}}, "noisy labels are of no one class"),
        ("vafl", "balanced", {"answers": {"clip": 1, "head_clip": 1, "noise_multiplier": 1, "delta": 1e-5}},
         "the weights are counts of all labels"),
    ],
)  # fmt: skip
def test_tasks_that_cannot_be_weighted_are_refused(
    name: str, weights: Any, server: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        tree = config("split", "none").model_dump(mode="json", exclude_none=True)
        tree["federation"]["protocol"] = {"name": name}
        tree["server"] |= {"class_weights": weights, "privacy": server}
        parse(tree)
