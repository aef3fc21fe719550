"""A finished run, and tables, settings or code that have changed since: what goes on with it, or looks at it, refuses
them by name.

Bounds: no cell.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from colonnade.cli.read.export import export
from colonnade.common.errors import CheckpointError, ColonnadeError, ConfigError, DataError
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.virtual import resume_virtually, run_virtually
from colonnade.reports.explanation.trained import open_run
from tests.support.tables import table_tree, write_tables

Change = Callable[[list[str]], list[str]]


def reordered(lines: list[str]) -> list[str]:
    return random.Random(1).sample(lines, len(lines))


def exchanged(lines: list[str]) -> list[str]:
    """Another label, or another first number, in each row."""
    return [line.replace(",1", ",x").replace(",0", ",1").replace(",x", ",0") for line in lines]


CHANGES = {
    "labels in another order": ("server", reordered, "server"),
    "other labels": ("server", exchanged, "server.labels has changed"),
    "columns in another order": ("party1", reordered, "party1: the keys of its table, or their order, have changed"),
    "other columns": ("party1", exchanged, "party1: the table has changed since the run was begun"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, persons=120)
    (folder / "federation.yaml").write_text(yaml.safe_dump(table_tree(epochs=1)))
    run_virtually(GivenConfig.of(folder / "federation.yaml"), folder / "run")
    return folder


@pytest.mark.parametrize(("member", "change", "said"), CHANGES.values(), ids=CHANGES)
def test_a_run_neither_goes_on_nor_is_explained_with_them(
    finished: Path, member: str, change: Change, said: str
) -> None:
    table = finished / f"{member}.csv"
    before = table.read_text()
    head, *lines = before.splitlines()
    open_run(finished / "run")
    table.write_text("\n".join([head, *change(lines)]) + "\n")
    try:
        with pytest.raises(DataError, match=said):
            open_run(finished / "run")
        with pytest.raises(DataError, match=said.removeprefix("party1: ")):
            resume_virtually(finished / "run", ("federation.epochs=2",))
        if member == "server":
            with pytest.raises(DataError, match=said):
                export(finished / "run", "server", None, finished / "export")
    finally:
        table.write_text(before)


TOWER = """from torch import nn


class Tower(nn.Sequential):
    def __init__(self, shape, width, embedding):
        super().__init__(nn.Linear(shape[0], width), nn.Linear(width, embedding))
"""


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SETTINGS = {
    "server.class_weights=[1, 50]": "server.class_weights",
    "server.head={name: linear}": "server.head.name",
    "every_party.data.noise={std: 3}": "parties.party1.data.noise",
    "parties.party1.model.signed=true": "parties.party1.model.signed",
    "parties.party1.optimiser.weight_decay=0.9": "parties.party1.optimiser.weight_decay",
    "parties.party2.model.width=5": "the arguments of parties.party2.model",
}


@pytest.fixture(scope="module")
def with_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    write_tables(folder, persons=60)
    (folder / "tower.py").write_text(TOWER)
    tree = table_tree(epochs=1)
    tree["parties"]["party1"]["model"] = {"name": "mlp", "hidden": 6}
    tree["parties"]["party2"]["model"] = {"file": "./tower.py:Tower", "width": 4, "embedding": 8}
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    run_virtually(GivenConfig.of(folder / "federation.yaml"), folder / "run")
    return folder


@pytest.mark.parametrize(("setting", "key"), SETTINGS.items())
def test_a_run_does_not_go_on_with_other_settings(with_code: Path, setting: str, key: str) -> None:
    before = contents(with_code / "run")
    with pytest.raises(CheckpointError, match=f"another configuration: it differs in {re.escape(key)}"):
        resume_virtually(with_code / "run", ("federation.epochs=2", setting))
    assert contents(with_code / "run") == before


def test_a_run_does_not_go_on_with_other_columns(with_code: Path) -> None:
    name = (with_code / "party1.csv").read_text().split("\n")[0].split(",")[1]
    for setting in (f"parties.party1.data.columns=[{name}]", f"parties.party1.data.drop=[{name}]"):
        with pytest.raises(ConfigError, match=r"leaves .* out, a column of training"):
            resume_virtually(with_code / "run", ("federation.epochs=2", setting))


def test_learning_rates_may_change(with_code: Path, tmp_path: Path) -> None:
    rates = ("every_party.optimiser.lr=0.001", "server.optimiser.lr=0.001")
    shutil.copytree(with_code / "run", tmp_path / "run")
    assert resume_virtually(tmp_path / "run", ("federation.epochs=2", *rates))


def test_edited_code_of_a_model_is_refused(with_code: Path, tmp_path: Path) -> None:
    """The parameters would fit, and the numbers be others."""
    run = with_code / "run"
    (with_code / "tower.py").write_text(TOWER.replace("width, embedding))", "width, embedding), nn.Tanh())"))
    said = r"differs in the content of parties\.party2\.model\.file"
    try:
        for use in (
            lambda: resume_virtually(run, ("federation.epochs=2",)),
            lambda: open_run(run),
            lambda: export(run, "party2", None, with_code / "export"),
        ):
            with pytest.raises(ColonnadeError, match=said):
                use()
    finally:
        (with_code / "tower.py").write_text(TOWER)
    assert not (with_code / "export").exists()
