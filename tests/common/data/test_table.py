"""The same table in every format is the same features."""

import csv
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.cli.data.deal import label_table_bytes, table_bytes
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ColonnadeError, ConfigError, DataError

HEADER = ("who", "age", "town", "outcome")
ROWS = [(7, 30.5, "Ulm", "yes"), (3, None, " Bonn", "no"), (12, -1.0, None, "yes")]


def as_csv(folder: Path, rows: list[tuple]) -> dict:
    with (folder / "t.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([HEADER, *(["" if cell is None else cell for cell in row] for row in rows)])
    return {"source": "csv", "path": "t.csv"}


def arrow(rows: list[tuple]) -> pa.Table:
    return pa.table({name: pa.array([row[place] for row in rows]) for place, name in enumerate(HEADER)})


def as_parquet(folder: Path, rows: list[tuple]) -> dict:
    pa.parquet.write_table(arrow(rows), folder / "t.parquet", row_group_size=2)
    return {"source": "parquet", "path": "t.parquet"}


def as_folder(folder: Path, rows: list[tuple]) -> dict:
    (folder / "parts").mkdir()
    for place, row in enumerate(rows):
        table = arrow([row]).cast(arrow(ROWS).schema)
        pa.parquet.write_table(table, folder / "parts" / f"{place}.parquet")
    return {"source": "parquet", "path": "parts"}


def as_arrow(folder: Path, rows: list[tuple]) -> dict:
    pa.feather.write_feather(arrow(rows), folder / "t.arrow")
    return {"source": "arrow", "path": "t.arrow"}


def as_sqlite(folder: Path, rows: list[tuple]) -> dict:
    with sqlite3.connect(folder / "t.db") as link:
        link.execute("create table clients (who integer, age real, town text, outcome text)")
        link.executemany("insert into clients values (?, ?, ?, ?)", rows)
    link.close()
    return {"source": "sql", "url": "sqlite:///t.db", "query": "select * from clients order by rowid;"}


def as_duckdb(folder: Path, rows: list[tuple]) -> dict:
    as_parquet(folder, rows)
    return {"source": "duckdb", "query": "select * from 't.parquet';"}


FORMATS = [as_csv, as_parquet, as_folder, as_arrow, as_sqlite, as_duckdb]
Format = Callable[[Path, list[tuple]], dict]


def read(folder: Path, config: dict, **more: object) -> Features:
    how = TypeAdapter(DataConfig).validate_python({**config, **more})
    return load_features(how, PartyIndex(0, 1), folder)


def cells(features: Features) -> list[list[float | None]]:
    return [[None if np.isnan(cell) else cell for cell in row] for row in features.values.tolist()]


@pytest.mark.parametrize("write", FORMATS)
def test_the_same_table_in_every_format(tmp_path: Path, write: Format) -> None:
    features = read(tmp_path, write(tmp_path, ROWS), key="who", drop=["outcome"], missing="mean")
    assert features.ids == ("7", "3", "12")
    assert features.fields == (TypedColumn("age"), TypedColumn("town", ("Bonn", "Ulm")))
    assert cells(features) == [[30.5, 1.0], [None, 0.0], [-1.0, None]]


@pytest.mark.parametrize("write", FORMATS)
def test_labels_in_every_format(tmp_path: Path, write: Format) -> None:
    how = {**write(tmp_path, ROWS), "key": "who", "label": "outcome"}
    found = load_labels(TypeAdapter(LabelConfig).validate_python(how), tmp_path)
    assert found.values.tolist() == [1, 0, 1] and found.classes == ("no", "yes") and found.ids == ("7", "3", "12")


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"key": "whom"}, r"has no column 'whom' \(did you mean 'who'\?\)"),
        ({"columns": ["agee"]}, r"has no column 'agee' \(did you mean 'age'\?\)"),
        ({"types": {"twon": "number"}}, r"has no column 'twon' \(did you mean 'town'\?\)"),
        ({"columns": ["age"]}, r"(line 3|row 2|1.parquet, row 1), column 'age': the value is missing"),
        ({"columns": ["outcome"], "types": {"outcome": "number"}}, r"(line 2|row 1).*'outcome': 'yes' is no number"),
        ({"key": "town", "columns": ["who"]}, r"(line 4|row 3|2.parquet, row 1), column 'town': the value is missing"),
        ({"key": "outcome", "columns": ["who"]}, "'outcome': 1 key stands in several rows, 2 rows in all; 'yes' in"),
    ],
)
def test_faults_in_every_format(tmp_path: Path, write: Format, more: dict, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, write(tmp_path, ROWS), **more)
    assert caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize("write", FORMATS)
def test_keys_are_kept_as_they_are_written_and_a_blank_one_is_missing(tmp_path: Path, write: Format) -> None:
    rows = [(1, 1.5, " Ulm ", "x"), (2, 2.5, "Ulm", "y"), (3, 2.5, "Ulm\u00a0", "z")]
    assert read(tmp_path, write(tmp_path, rows), key="town", columns=["who"]).ids == (" Ulm ", "Ulm", "Ulm\u00a0")
    (tmp_path / "blank").mkdir()
    how = write(tmp_path / "blank", [*rows, (4, 1.0, " \t", "x")])
    with pytest.raises(DataError, match=r"(line 5|row 4|3.parquet, row 1), column 'town': the value is missing"):
        read(tmp_path / "blank", how, key="town", columns=["who"])


@pytest.mark.parametrize("write", [as_csv, as_parquet, as_arrow])
def test_a_key_of_fractions_is_refused(tmp_path: Path, write: Format) -> None:
    rows = [(1, 1.5, "a", "x"), (2, 2.5, "b", "y")]
    with pytest.raises(DataError, match=r"keys are fractions, such as 1\.5|column 'age': is of type double"):
        read(tmp_path, write(tmp_path, rows), key="age", columns=["who"])


@pytest.mark.parametrize("write", FORMATS)
def test_a_table_without_rows_is_refused(tmp_path: Path, write: Format) -> None:
    if write is as_folder:
        pytest.skip("there is no file")
    with pytest.raises(DataError, match="has columns but no rows"):
        read(tmp_path, write(tmp_path, []), columns=["age"])


rows = st.lists(
    st.tuples(
        st.integers(-(2**62), 2**62),
        st.none() | st.floats(-1e30, 1e30).map(lambda number: number + 0.0),  # SQLite has no -0.0
        st.sampled_from(["Ulm", "Kiel", "München", "a,b", 'c"d', "e\nf", None]),
        st.just("yes"),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[0],
)


@given(rows, st.integers(1, 5))
def test_batches_make_no_difference_nor_does_the_format(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple], size: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    how = {"key": "who", "drop": ["outcome"], "missing": "mean", "types": {"age": "number", "town": "category"}}
    with pytest.MonkeyPatch.context() as patch:
        for module in ("arrow_table", "arrays", "database"):
            patch.setattr(f"colonnade.common.data.formats.{module}.BATCH", size)
        found = [read(folder, write(folder, cells), **how) for write in (as_csv, as_parquet, as_arrow, as_sqlite)]
    assert len({features.fingerprint for features in found}) == 1
    towns = sorted({row[2] for row in cells} - {None})
    assert found[0].fields == (TypedColumn("age"), TypedColumn("town", tuple(towns)))
    for row, values, key in zip(cells, found[0].values.tolist(), found[0].ids, strict=True):
        assert key == str(row[0])
        assert row[1] is None if np.isnan(values[0]) else values[0] == row[1]
        assert row[2] is None if np.isnan(values[1]) else towns[int(values[1])] == row[2]


def test_mostly_numeric_columns_are_not_categories(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\noops,3\n")
    with pytest.raises(DataError, match="line 4, column 'a': 'oops' is no number") as caught:
        read(tmp_path, {"source": "csv", "path": "t.csv"})
    assert "`types`" in caught.value.hint
    features = read(tmp_path, {"source": "csv", "path": "t.csv"}, types={"a": "category"})
    assert features.fields == (TypedColumn("a", ("1", "2", "oops")), TypedColumn("b", ("3", "x", "y")))


def test_a_column_of_times_is_refused_and_may_be_a_category(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"t": pa.array([0, 86_400], pa.timestamp("ms"))}), tmp_path / "t.parquet")
    config = {"source": "parquet", "path": "t.parquet"}
    with pytest.raises(
        DataError, match=r"column 't': is of type timestamp\[ms\], neither a number nor a word"
    ) as refused:
        read(tmp_path, config)
    assert "`types: {t: date}`" in refused.value.hint
    assert len(read(tmp_path, config, types={"t": "category"}).fields[0].words or ()) == 2


TYPED = {
    "x": pa.array([1.5, None, 3.0]).cast(pa.decimal128(12, 2)),
    "flag": pa.array([True, False, None]),
    "small": pa.array([1, 0, 1], pa.int8()),
    "coded": pa.array([5, 6, 5]).dictionary_encode(),
    "day": pa.array([0, None, 2], pa.date32()),
    "at": pa.array([0, 43_200_000, 86_400_000], pa.timestamp("ms", "Europe/Berlin")),
    "town": pa.array(["Ulm", "Bonn", "Ulm"], pa.large_string()),
    "word": pa.array(["a", "b", "a"]).dictionary_encode(),
    "said": pa.array(["1,5", "2", ""], pa.large_string()),
    "yes": pa.array(["ja", "Nein", "?"]),
}


def test_types_of_arrow(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table(TYPED), tmp_path / "t.parquet")
    types = {"day": "date", "at": "date", "yes": "boolean", "small": "boolean"}
    config = {"source": "parquet", "path": "t.parquet", "types": types, "decimal": ",", "missing": "mean"}
    features = read(tmp_path, config)
    columns = dict(zip(features.names, map(list, zip(*cells(features), strict=True)), strict=True))
    assert columns == {
        "x": [1.5, None, 3.0],
        "flag": [1, 0, None],
        "small": [1, 0, 1],
        "coded": [5, 6, 5],
        "day": [0, None, 2],
        "at": [0, 0.5, 1],
        "town": [1, 0, 1],
        "word": [0, 1, 0],
        "said": [1.5, 2, None],
        "yes": [1, 0, None],
    }


def test_a_structured_array_has_any_number_of_fields_and_a_head_within_bounds(tmp_path: Path) -> None:
    fields = [("who", "U4"), *((f"g{place}", "i4") for place in range(1000))]
    np.save(tmp_path / "t.npy", np.array([("a", *range(1000))], fields))
    assert cells(read(tmp_path, {"source": "npy", "path": "t.npy"}, key="who")) == [[*range(1000)]]
    head = b" " * (9 << 20)
    (tmp_path / "t.npy").write_bytes(b"\x93NUMPY\2\0" + len(head).to_bytes(4, "little") + head)
    with pytest.raises(DataError, match="its head has more than 8 MB"):
        read(tmp_path, {"source": "npy", "path": "t.npy"})


def test_dates_of_numpy_and_of_a_database(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([("1970-01-03", 1)], [("day", "M8[s]"), ("x", "i4")]))
    assert cells(read(tmp_path, {"source": "npy", "path": "t.npy", "types": {"day": "date"}})) == [[2, 1]]
    with sqlite3.connect(tmp_path / "t.db") as link:
        link.execute("create table t (day date, cost text)")
        link.execute("insert into t values ('1970-01-03', '€ 1.234,50')")
    how = {"source": "sql", "url": "sqlite:///t.db", "table": "t", "types": {"day": "date"}, "units": {"cost": "€"}}
    assert cells(read(tmp_path, {**how, "decimal": ",", "thousands": "."})) == [[2, 1234.5]]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_that_is_none(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t").write_bytes(b"no table")
    with pytest.raises(DataError, match="t cannot be read"):
        read(tmp_path, {"source": kind, "path": "t"})


def test_columns_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    as_parquet(tmp_path, ROWS)
    content = (tmp_path / "t.parquet").read_bytes()
    assert content.count(b"Ulm")
    (tmp_path / "t.parquet").write_bytes(content.replace(b"Ulm", b"\xff\xff\xff"))  # no text, if it were read
    assert read(tmp_path, {"source": "parquet", "path": "t.parquet"}, columns=["who"]).values.tolist() == [
        [7],
        [3],
        [12],
    ]


def test_numpy_tables(tmp_path: Path) -> None:
    np.save(tmp_path / "plain.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    plain = read(tmp_path, {"source": "npy", "path": "plain.npy"}, missing="zero")
    assert plain.names == ("column_0", "column_1") and cells(plain) == [[1, 2], [3, None]]
    persons = np.array([(7, "Ulm", 1.5), (3, "Bonn", 2.5)], [("who", ">i4"), ("town", "U8"), ("size", "f4")])
    np.save(tmp_path / "people.npy", persons)
    keyed = read(tmp_path, {"source": "npy", "path": "people.npy"}, key="who")
    assert keyed.ids == ("7", "3") and cells(keyed) == [[1.0, 1.5], [0.0, 2.5]]
    np.save(tmp_path / "y.npy", np.array([1, 0, 1]))
    outcome = {"source": "npy", "path": "y.npy", "label": "column_0"}
    assert load_labels(TypeAdapter(LabelConfig).validate_python(outcome), tmp_path).values.tolist() == [1, 0, 1]


@pytest.mark.parametrize("array", [np.array([{}], object), np.zeros((2, 2, 2)), np.zeros(2, complex), np.array(1.0)])
def test_numpy_files_that_are_no_tables(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=r"t\.npy"):
        read(tmp_path, {"source": "npy", "path": "t.npy"})


def test_a_table_of_a_database_is_read_in_the_order_of_its_key(tmp_path: Path) -> None:
    config = {**as_sqlite(tmp_path, ROWS), "table": "clients", "query": None, "columns": ["age"], "missing": "zero"}
    assert read(tmp_path, config, key="who").ids == ("3", "7", "12")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"url": "sqlite:///gone.db"}, DataError, "no database at"),
        ({"url": "nonsense"}, ConfigError, "URL cannot be used"),
        ({"url": "nodb://x/y"}, ConfigError, "URL cannot be used"),
        ({"query": None, "table": "client"}, DataError, "has no table 'client'"),
        ({"query": "select gone from clients"}, DataError, "no such column: gone"),
        ({"query": "select who, who from clients"}, DataError, "two columns are called 'who'"),
    ],
)
def test_databases_that_cannot_be_used(tmp_path: Path, changes: dict, kind: type[Exception], message: str) -> None:
    with pytest.raises(ColonnadeError, match=message) as caught:
        read(tmp_path, {**as_sqlite(tmp_path, ROWS), **changes})
    assert isinstance(caught.value, kind) and not (tmp_path / "gone.db").exists()


@pytest.mark.parametrize(
    "config",
    [
        {"source": "csv", "path": "x", "columns": ["a"], "drop": ["b"]},
        {"source": "csv", "path": "x", "columns": ["a", "a"]},
        {"source": "csv", "path": "x", "key": "a", "columns": ["a"]},
        {"source": "csv", "path": "x", "key": "a", "id": "a"},
        {"source": "parquet", "path": "x", "id": "a"},
        {"source": "csv", "path": "x", "types": {"a": "word"}},
        {"source": "csv", "path": "x", "types": {"a": "date %d.%m.%y"}},
        {"source": "csv", "path": "x", "types": {"a": "date"}, "units": {"a": "€"}},
        {"source": "csv", "path": "x", "units": {"a": " "}},
        {"source": "csv", "path": "x", "decimal": ";"},
        {"source": "csv", "path": "x", "decimal": ",", "thousands": ","},
        {"source": "csv", "path": "x", "encoding": "klingon"},
        {"source": "csv", "path": "x", "encoding": "base64"},
        {"source": "csv", "path": "x", "missing": "guess"},
        {"source": "sql", "url": "sqlite:///x"},
        {"source": "sql", "url": "sqlite:///x", "table": "t", "query": "select 1"},
    ],
)
def test_configurations_that_are_refused(config: dict) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(DataConfig).validate_python(config)


@given(rows)
def test_written_tables_read_back_equal(tmp_path_factory: pytest.TempPathFactory, cells: list[tuple]) -> None:
    folder = tmp_path_factory.mktemp("t")
    how = {"key": "who", "drop": ["outcome"], "missing": "mean", "types": {"age": "number", "town": "category"}}
    features = read(folder, as_parquet(folder, cells), **how)
    (folder / "dealt.parquet").write_bytes(table_bytes(features, "who"))
    dealt = read(folder, {"source": "parquet", "path": "dealt.parquet"}, **{**how, "drop": []})
    assert dealt.fingerprint == features.fingerprint


def test_labels_that_are_dealt(tmp_path: Path) -> None:
    how = {**as_csv(tmp_path, ROWS), "id": "who", "label": "outcome"}
    labels = load_labels(TypeAdapter(LabelConfig).validate_python(how), tmp_path)
    (tmp_path / "dealt.parquet").write_bytes(label_table_bytes(labels, "who", ["outcome"]))
    back = {"source": "parquet", "path": "dealt.parquet", "key": "who", "label": "outcome", "name": "clients"}
    dealt = load_labels(TypeAdapter(LabelConfig).validate_python(back), tmp_path)
    assert dealt.values.tolist() == labels.values.tolist()
    assert (dealt.classes, dealt.ids) == (labels.classes, labels.ids)
