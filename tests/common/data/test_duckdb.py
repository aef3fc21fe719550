"""Queries by DuckDB over files and its own databases."""

from pathlib import Path

import duckdb
import pytest
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.sources import load_features
from colonnade.common.errors import DataError


def read(folder: Path, query: str, **more: object) -> Features:
    how = TypeAdapter(DataConfig).validate_python({"source": "duckdb", "query": query, **more})
    return load_features(how, PartyIndex(0, 1), folder)


def test_files_are_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,pay\nann,1.5\nbob,2\n")
    (tmp_path / "b.csv").write_text("who,town\nbob,Ulm\nann,Rom\n")
    query = "select who, pay, town, pay::decimal(9, 2) as cost from 'a.csv' join 'b.csv' using (who) order by who"
    found = read(tmp_path, query, key="who")
    assert found.ids == ("ann", "bob") and found.values.tolist() == [[1.5, 0, 1.5], [2, 1, 2]]


def test_a_database_is_only_read(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "t.db")) as link:
        link.execute('create table t as select i as x, i % 7 as "a ""b""" from range(100000) r(i)')
    found = read(tmp_path, "select * from t", path="t.db", columns=['a "b"', "x"])
    assert found.values[:, 1].tolist() == list(range(100_000)) and found.values[9].tolist() == [2, 9]
    for query in ("drop table t", "create table u (x int)", "insert into t values (1, 1)"):
        with pytest.raises(DataError, match=r"t\.db, query"):
            read(tmp_path, query, path="t.db")
    assert len(read(tmp_path, "select x from t", path="t.db").values) == 100_000


WRONG = {
    "select * from 'none.parquet'": "No files found", "selec 1": "syntax error", "select 1 as x, 2 as x": "two columns",
    "create table t (x int)": "syntax error", "copy (select 1) to 'out.csv'": "syntax error",
    "select error('bad') as x": "bad", "select 1 as x where false": "no rows",
}  # fmt: skip


@pytest.mark.parametrize(("query", "said"), WRONG.items())
def test_wrong_queries(tmp_path: Path, query: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as wrong:
        read(tmp_path, query)
    assert wrong.value.hint and not [*tmp_path.iterdir()]


def test_every_pass_sees_one_order(tmp_path: Path) -> None:
    """A table of words is read twice: for its types, and for its cells."""
    query = "select i % 977 as g, sum(i)::double as s from range(300000) r(i) group by g"
    first, second = (read(tmp_path, query, types={"g": "number", "s": "number"}).values for _ in range(2))
    assert first.tolist() == second.tolist()


def test_an_address_is_named_without_secrets(tmp_path: Path) -> None:
    how = TypeAdapter(DataConfig).validate_python(
        {"source": "parquet", "path": f"nowhere://me:secret@host{tmp_path}/x?token=secret"}
    )
    with pytest.raises(DataError) as wrong:
        load_features(how, PartyIndex(0, 1), tmp_path)
    assert "nowhere://host" in str(wrong.value) and "secret" not in f"{wrong.value} {wrong.value.hint}"


def test_json_is_refused_with_the_way_to_its_text(tmp_path: Path) -> None:
    """Keys of which some are numbers are JSON, with quotation marks around the others."""
    (tmp_path / "t.jsonl").write_text('{"id": 17, "x": 1}\n{"id": "A18", "x": 2}\n')
    with pytest.raises(DataError, match="the column 'id' is JSON") as wrong:
        read(tmp_path, "select * from 't.jsonl'", key="id")
    assert "id ->> '$' as id" in wrong.value.hint
    found = read(tmp_path, "select id ->> '$' as id, x from 't.jsonl'", key="id")
    assert found.ids == ("17", "A18")
    assert read(tmp_path, "select * from 't.jsonl'", drop=["id"]).names == ("x",)
