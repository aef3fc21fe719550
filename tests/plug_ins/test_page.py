"""The examples of docs/plug_ins.md, installed and run as the page shows them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.read.protocols import GROUPS
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.parsing.file import parse
from colonnade.simulation.federation import Outcome, Simulation
from tests.support.packages import Packages

PAGE = (Path(__file__).parents[2] / "docs" / "plug_ins.md").read_text()
FENCES = re.findall(r"^```(toml|python|yaml)\n(.*?)^```", PAGE, re.S | re.M)


@dataclass(frozen=True)
class Example:
    group: str
    entries: Mapping[str, str]
    source: str
    settings: Mapping[str, Any]


def examples() -> Mapping[str, Example]:
    """By the first name that each registers."""
    found = {}
    for (kind, toml), (python, source), (_, settings) in zip(FENCES, FENCES[1:], FENCES[2:], strict=False):
        if (kind, python) == ("toml", "python"):
            [(group, entries)] = tomllib.loads(toml)["project"]["entry-points"].items()
            found[next(iter(entries))] = Example(
                group.removeprefix("colonnade."), entries, source, yaml.safe_load(settings)
            )
    return found


def over(under: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    whole = ("data", "labels", "protocol")  # a source or protocol of another kind keeps no key
    return under | {
        key: over(under[key], value) if isinstance(under.get(key), dict) and key not in whole else value
        for key, value in settings.items()
    }


def train(packages: Packages, name: str) -> Outcome:
    example = examples()[name]
    packages.install(f"colonnade-{name}", example.group, example.entries, example.source)
    digits = {"source": "sklearn", "name": "digits"}
    tree = {
        "federation": {
            "id": "page", "protocol": {"name": "split", "embedding": 8}, "parties": ["bank", "clinic"],
            "classes": 2 if "labels" in example.settings.get("server", {}) else 10,
            "rounds": 80, "epochs": 0, "batch": 32,
        },
        "server": {"labels": digits},
        "every_party": {"data": {**digits, "split": "columns"}},
    }  # fmt: skip
    config = parse(over(tree, example.settings))
    stored = config.model_dump(mode="json", exclude_none=True)  # as members and resumed runs get it
    assert parse(yaml.safe_load(yaml.safe_dump(stored))) == config
    return Simulation(config).run()


def test_every_group_but_protocols_has_an_example() -> None:
    assert set(examples()) == {"waves", "ledgers", "gated", "focal", "specificity"}
    groups = set(re.findall(r"^\| \[`(colonnade\.\w+)`\]", PAGE, re.M))
    assert groups | {"colonnade.trackers"} == {plug_ins.group for plug_ins in GROUPS}


def test_a_source_of_columns(packages: Packages) -> None:
    outcome = train(packages, "waves")
    assert outcome.clients["bank"].features.shape == (200, 4)
    assert outcome.server.metrics["test_accuracy"] > 0.9


def test_a_source_of_tables(packages: Packages) -> None:
    outcome = train(packages, "ledgers")
    shapes = {ctx.features.shape[1] for ctx in outcome.clients.values()}
    assert shapes == {3, 1}  # branch and income, whose words are columns, and age
    assert outcome.server.metrics["test_accuracy"] > 0.9


def test_models(packages: Packages) -> None:
    outcome = train(packages, "gated")
    assert type(outcome.clients["bank"].state["model"].inner).__name__ == "Gated"
    assert {tuple(weight.shape) for weight in outcome.server.state["head"].parameters()} >= {(64, 32), (10, 64)}
    assert outcome.server.metrics["test_accuracy"] > 0.8


def test_a_loss(packages: Packages) -> None:
    outcome = train(packages, "focal")
    assert outcome.server.metrics["test_accuracy"] > 0.8
    assert outcome.server.metrics["train_loss"] < outcome.server.metrics["val_loss"]  # focal is below cross-entropy


def test_a_metric(packages: Packages) -> None:
    outcome = train(packages, "specificity")
    measured = [event["test_specificity"] for event in outcome.of_kind("evaluation") if event["part"] == "test"]
    assert measured and outcome.server.metrics["test_specificity"] == measured[-1] > 0.8


def test_the_page_lists_the_protocols_that_take_a_loss() -> None:
    [named] = re.findall(r"^- Supported by (.*?), and\n", PAGE, re.M | re.S)
    assert set(re.findall(r"`(\w+)`", named)) == {name for name in NAMES if CONTRACTS[name].exchange.any_loss}


@pytest.mark.parametrize("words", ["for the protocol 'signs', the server", "install the same version of the package"])
def test_the_refusal_is_as_the_code_has_it(words: str) -> None:
    assert words in PAGE
