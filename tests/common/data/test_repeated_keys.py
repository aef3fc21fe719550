"""Several rows of one key: refused, or one row a key by the owner's policy, which others cannot tell from any other."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from tests.support.tables import table_tree

HEADER = "who,day,x,city"
LINES = ("b,2024-01-02,1,Ulm", "a,2024-03-01,2,Bonn", "b,2024-01-03,4,Ulm", "c,2023-01-01,,", "a,2024-02-01,6,Bonn")
ONE = PartyIndex(0, 1)


def source(path: Path, repeated: object, lines: tuple[str, ...] = LINES, **more: object) -> dict[str, Any]:
    path.write_text("\n".join([HEADER, *lines, ""]))
    return {"source": "csv", "path": str(path), "key": "who", "repeated": repeated, **more}


def columns(path: Path, repeated: object, lines: tuple[str, ...] = LINES, **more: object) -> Features:
    config = source(path, repeated, lines, drop=["day"], missing="mean", **more)
    return load_features(TypeAdapter(DataConfig).validate_python(config), ONE, path.parent)


def labels(path: Path, repeated: object, lines: tuple[str, ...], label: str, **more: object) -> LabelColumn:
    config = TypeAdapter(LabelConfig).validate_python(source(path, repeated, lines, label=label, **more))
    return load_labels(config, path.parent, "classification" if label == "city" else "regression")


@pytest.mark.parametrize(
    ("repeated", "ids", "values", "said"),
    [
        ("first", "bac", [1, 2, None], "the first of each is used, 2 rows left out"),
        ("last", "bca", [4, None, 6], "the last of each is used, 2 rows left out"),
        ({"latest": "day"}, "abc", [2, 4, None], "the one with the latest 'day' is used, 2 rows left out"),
        ("mean", "bac", [2.5, 4, None], "each is used as its mean, 2 rows left out"),
    ],
)
def test_one_row_of_each_key_is_used_and_the_others_are_counted(
    repeated: object, ids: str, values: list[float | None], said: str, tmp_path: Path
) -> None:
    found = columns(tmp_path / "t.csv", repeated)
    assert list(found.ids or ()) == list(ids)
    assert [None if x != x else x for x in found.values[:, 0].tolist()] == values
    words = found.fields[1].words or ()
    assert [words[int(code)] for code in found.values[:, 1].tolist() if code == code] == [
        {"a": "Bonn", "b": "Ulm"}[key] for key in ids if key != "c"
    ]
    assert any(said in str(doubt) and "5 rows have 3 keys" in str(doubt) for doubt in found.doubts)
    assert found.place is not None
    lines = [found.place(row).rpartition(" ")[2] for row in range(3)]
    assert [LINES[int(line) - 2][0] for line in lines] == list(ids)


def test_without_a_policy_they_are_refused_with_file_and_lines(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv, column 'who': 2 keys stand .* 4 rows .*'b' in .*line 2 and .*line 4"):
        columns(tmp_path / "t.csv", "refuse")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), min_size=1, max_size=12), st.booleans())
def test_a_policy_takes_what_a_plain_loop_takes(rows: list[tuple[str, int]], last: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        found = columns(path, "last" if last else "first", tuple(f"{key},,{x},Ulm" for key, x in rows))
    plain = dict(rows) if last else dict(reversed(rows))
    assert dict(zip(found.ids or (), found.values[:, 0].tolist(), strict=True)) == plain


def test_labels_choose_among_rows_that_have_one(tmp_path: Path) -> None:
    lines = ("a,3,1,Ulm", "a,5,2,", "b,1,3,Bonn", "a,4,4,Bonn", "c,1,5,Ulm", "b,0,6,Ulm")
    found = labels(tmp_path / "t.csv", {"latest": "day"}, lines, "city", missing="drop", weight="x")
    assert (list(found.ids or ()), found.values.tolist()) == (["b", "a", "c"], [0, 0, 1])
    assert found.weights is not None and found.weights.tolist() == [3, 4, 5]
    assert (found.without, found.repeated) == ("1 of 6 rows have no label and are left out", 2)
    numbers = labels(tmp_path / "t.csv", "first", lines, "x")
    assert (list(numbers.ids or ()), numbers.values.flatten().tolist()) == (["a", "b", "c"], [1, 3, 5])


@pytest.mark.parametrize(
    ("lines", "repeated", "said"),
    [
        (("a,1,1,x", "a,1,2,x", "b,1,1,x"), {"latest": "day"}, "line 2 and .*line 3 have one key and one 'day'"),
        (("a,1,1,x", "a,,2,x"), {"latest": "day"}, "line 3, column 'day': the value is missing"),
        (("a,1,1,x", "a,soon,2,x"), {"latest": "day"}, "line 3, column 'day': 'soon' is no number"),
        (("a,2024-01-01,1,x", "a,soon,2,x"), {"latest": "day"}, "'soon' is no date"),
        (("a,1,1,x", "a,2,2,x"), {"latest": "when"}, "has no column 'when'"),
        (("a,1,1,x", "a,2,2,y", "b,2,2,y"), "mean", "line 2, column 'city': words differ within 1 of 2 keys"),
    ],
)
def test_where_no_row_can_be_chosen_the_table_is_refused(
    lines: tuple[str, ...], repeated: object, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        columns(tmp_path / "t.csv", repeated, lines)


def test_keys_that_are_the_same_only_as_members_compare_them_are_still_refused(tmp_path: Path) -> None:
    found = columns(tmp_path / "t.csv", "first", ("ann,1,1,x", "Ann,2,2,x", "ann,3,3,x"))
    assert list(found.ids or ()) == ["ann", "Ann"]
    with pytest.raises(DataError, match="1 of 2 rows repeat the key of another row"):
        RowKeys.of(found.ids, KeysConfig(case="fold"), "bank")


def test_a_kept_copy_of_the_table_gives_the_same_rows(tmp_path: Path) -> None:
    config = TypeAdapter(DataConfig).validate_python(
        source(tmp_path / "t.csv", {"latest": "day"}, drop=["day"], missing="mean")
    )
    (tmp_path / "run").mkdir(mode=0o700)
    found = []
    for _ in range(2):
        cache = TableCache(tmp_path / "run", writes=True)
        found.append(load_features(config, ONE, tmp_path, cache))
        cache.keep()
    assert list((tmp_path / "run").rglob("columns.safetensors"))
    assert found[0].fingerprint == found[1].fingerprint and found[0].doubts == found[1].doubts


@pytest.mark.parametrize(
    ("change", "align", "said"),
    [
        ({"repeated": "last"}, "none", "party1.data.repeated: rows are not aligned"),
        ({"repeated": "last", "key": None}, "psi", "party1.data.repeated: rows are not aligned"),
        ({"source": "sql", "url": "sqlite:///t.db", "table": "t", "repeated": "first"}, "psi", "have no order"),
    ],
)
def test_policies_that_mean_nothing_are_refused(change: dict[str, Any], align: str, said: str) -> None:
    tree = table_tree(align=align)
    data = {"source": "csv", "path": "t", "key": "who", **change}
    if data["source"] == "sql":
        data.pop("path")
    tree["parties"]["party1"]["data"] = data
    with pytest.raises(ConfigError, match=said):
        parse(tree)


@pytest.mark.parametrize("repeated", ["latest", {"latest": "a", "first": "b"}, {}, 3])
def test_other_words_are_no_policy(repeated: object, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        columns(tmp_path / "t.csv", repeated)
    with pytest.raises(ValidationError):
        labels(tmp_path / "t.csv", "mean", LINES, "x")


def test_the_latest_row_of_a_database_needs_no_order(tmp_path: Path) -> None:
    rows = [(f"k{n % 7}", n, float(n)) for n in range(50)]
    random.Random(3).shuffle(rows)
    with sqlite3.connect(tmp_path / "t.db") as link:
        link.execute("create table t (who, n, x)")
        link.executemany("insert into t values (?, ?, ?)", rows)
    link.close()
    how = {"source": "sql", "url": "sqlite:///t.db", "table": "t", "key": "who", "repeated": {"latest": "n"}}
    found = load_features(TypeAdapter(DataConfig).validate_python({**how, "columns": ["x"]}), ONE, tmp_path)
    latest = {key: max(n for one, n, _ in rows if one == key) for key, _, _ in rows}
    assert dict(zip(found.ids or (), found.values[:, 0].tolist(), strict=True)) == latest


def test_a_query_whose_rows_come_in_another_order_each_time_is_executed_once(tmp_path: Path) -> None:
    """The weight and what `latest` names are read with the labels or columns: every row has its own."""
    with sqlite3.connect(tmp_path / "t.db") as link:
        link.execute("create table t (id text, day int, y int, x float, w int)")
        rows = [(f"k{key}", day, (key + day) % 2, 10 * key + day, key + day) for key in range(40) for day in (5, 9)]
        link.executemany("insert into t values (?, ?, ?, ?, ?)", rows)
    section = {"source": "sql", "url": "sqlite:///t.db", "query": "select * from t order by random()", "key": "id"}
    section |= {"repeated": {"latest": "day"}}
    found = load_features(TypeAdapter(DataConfig).validate_python(section | {"columns": ["x"]}), ONE, tmp_path)
    assert dict(zip(found.ids or (), found.values[:, 0].tolist(), strict=True)) == {id: x for id, day, _, x, _ in rows}
    for label, task in (("y", "classification"), ("x", "regression")):
        config = TypeAdapter(LabelConfig).validate_python(section | {"label": label, "weight": "w"})
        read = load_labels(config, tmp_path, task)
        assert read.weights is not None
        own = {id: (y if label == "y" else x, w) for id, _, y, x, w in rows}
        pairs = zip(read.values.flatten().tolist(), read.weights.tolist(), strict=True)
        assert dict(zip(read.ids or (), pairs, strict=True)) == own
