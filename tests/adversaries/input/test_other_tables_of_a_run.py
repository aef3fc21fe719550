"""A finished run, and tables that have changed since: what goes on with it, or looks at it, refuses them by name.

Bounds: no cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from colonnade.cli.read.export import export
from colonnade.common.errors import DataError
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
