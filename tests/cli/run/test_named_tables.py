"""`--tables NAME=TABLE`: which member's table is meant, and where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.options import read_tables
from colonnade.common.config.members import Config
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.launcher.named_tables import with_tables
from tests.support.tables import table_tree

SQL = {"source": "sql", "url": "sqlite:///x.db", "key": "who"}
ACTIVE = {"data": {"source": "csv", "path": "server.csv", "key": "who", "drop": ["label"]}}


def config(data: dict[str, Any] | None = None, active: bool = False, **federation: Any) -> Config:
    tree = table_tree(**federation)
    if data is not None:
        tree["parties"]["party1"]["data"] = data
    if active:
        tree["federation"]["protocol"] = {"name": "vfedmh", "aggregate": "clear"}
        tree["server"]["active"] = ACTIVE
    return parse(tree)


def data_of(found: Config, name: str) -> Any:
    return found.parties[name].data


def test_a_file_is_that_of_the_working_directory_and_all_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = config()
    found = with_tables(before, read_tables(["party2 = new/x=1.csv"]))
    assert data_of(found, "party2").path == str(tmp_path / "new" / "x=1.csv")
    assert data_of(found, "party2").key == "who" and data_of(found, "party1") == data_of(before, "party1")
    assert with_tables(before, {}) is before


def test_of_a_database_it_is_a_table_or_a_query() -> None:
    table, query = {**SQL, "table": "march"}, {**SQL, "query": "select * from march"}
    assert data_of(with_tables(config(table), {"party1": "april"}), "party1").table == "april"
    found = data_of(with_tables(config(query), {"party1": "select * from april"}), "party1")
    assert (found.query, found.table) == ("select * from april", None)


def test_the_servers_own_columns_have_one_too() -> None:
    found = with_tables(config(active=True), {"server": "new.csv"})
    assert found.server is not None and found.server.active is not None
    assert found.server.active.data.path == str(Path("new.csv").resolve())  # type: ignore[union-attr]
    assert found.server.labels == config(active=True).server.labels  # type: ignore[union-attr]


@pytest.mark.parametrize("words", [["party1"], ["=x.csv"], ["party1="], ["party1=a", "party1=b"]])
def test_words_that_name_no_table_are_refused(words: list[str]) -> None:
    with pytest.raises(InputError, match="--tables"):
        read_tables(words)


@pytest.mark.parametrize(
    ("asked", "tables", "said"),
    [
        (config(), {"party3": "x.csv"}, "no member 'party3'"),
        (config().model_copy(update={"parties": {}}), {"party1": "x.csv"}, "party1 names its own table"),  # --file
        (config(), {"server": "x.csv"}, "has no columns"),
        (config({"source": "sklearn", "name": "digits"}), {"party1": "x.csv"}, "source sklearn, which is no table"),
        (config(align="none"), {"party1": "x.csv"}, "matched by their order"),
    ],
)
def test_a_table_that_nobody_would_read_is_refused(asked: Config, tables: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        with_tables(asked, tables)
    assert refused.value.hint
