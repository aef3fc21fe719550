"""What a search keeps is of the tables that it was computed from: others are refused, and results stay as they are."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

import colonnade
from colonnade.common.errors import InputError
from colonnade.search import workers
from tests.search.searches import LR
from tests.support.tables import table_tree, write_tables

TREE = table_tree(epochs=1, batch=8)


def tune(out: Path) -> Any:
    return colonnade.tune(TREE, trials=1, space=LR, out=out, progress=False).trials.drop_columns("seconds")


def cv(out: Path, config: Any = TREE, **more: Any) -> Any:
    return colonnade.cv(config, folds=2, out=out, progress=False, **more).folds.drop_columns("seconds")


BOTH = pytest.mark.parametrize("command", [tune, cv])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path, persons=80)
    return tmp_path


def reorder(table: Path) -> None:
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([head, *lines[::-1], ""]))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@BOTH
def test_another_table_is_refused_and_the_same_goes_on(here: Path, command: Callable[..., Any]) -> None:
    """Also where only the order of rows is another: their numbers would be other persons'."""
    before, kept = command(here / "out"), content(here / "out")
    for member, said in (("party1", "table of party1"), ("server", "label table")):
        text = (here / f"{member}.csv").read_text()
        reorder(here / f"{member}.csv")
        with pytest.raises(InputError, match=f"begun with another {said}$"):
            command(here / "out")
        assert content(here / "out") == kept
        (here / f"{member}.csv").write_text(text)
    assert command(here / "out").equals(before)


def test_rows_that_were_aligned_before_an_interruption_are_of_their_tables(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(workers, "perform", interrupt)
        cv(here / "cut")
    assert (here / "cut" / "cv-rows.safetensors").exists()
    reorder(here / "party1.csv")
    assert cv(here / "cut").equals(cv(here / "whole"))


@BOTH
def test_a_table_that_changes_in_a_trial_ends_the_search(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    """The trial is made again with the table restored."""
    plain, table = workers.perform, here / "party2.csv"
    text = table.read_text()

    def replaced(*task: Any) -> Any:
        reorder(table)
        return plain(*task)

    with monkeypatch.context() as changing, pytest.raises(InputError, match="table of party2 changed while"):
        changing.setattr(workers, "perform", replaced)
        command(here / "out")
    table.write_text(text)
    found = command(here / "out")
    assert found["state"].to_pylist() == ["lost", "complete"] if command is tune else found.equals(cv(here / "whole"))


def test_a_folder_without_a_word_on_its_tables_is_refused(here: Path) -> None:
    cv(here / "out")
    record = here / "out" / "cv.json"
    found = json.loads(record.read_text())
    del found["tables"]
    record.write_text(json.dumps(found))
    with pytest.raises(InputError, match="earlier version") as refused:
        cv(here / "out")
    assert "--out" in refused.value.hint


def test_other_tables_in_memory_are_refused_and_the_first_stay(here: Path) -> None:
    config = copy.deepcopy(TREE)
    for section in (config["server"]["labels"], *(party["data"] for party in config["parties"].values())):
        section["key"] = section.pop("id")
        del section["source"], section["path"]
    tables = {name: pyarrow.csv.read_csv(here / f"{name}.csv") for name in ("server", "party1", "party2")}
    first = cv(here / "out", config=config, tables=tables)
    kept = content(here / "out")
    with pytest.raises(InputError, match=r"another table of party1$"):
        cv(here / "out", config=config, tables={**tables, "party1": tables["party1"].slice(1)})
    assert content(here / "out") == kept
    assert cv(here / "out", config=config, tables=tables).equals(first)
