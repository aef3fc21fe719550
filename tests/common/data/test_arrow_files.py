"""Folders of files with one schema, names of folders as columns, and the row index of pandas."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns import cells
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.arrow_table import ArrowFiles, ArrowTable
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError
from colonnade.launcher.configuration import InMemoryTable

data = TypeAdapter(DataConfig).validate_python
Write = Callable[[pa.Table, Path], object]
WRITERS: dict[str, Write] = {"parquet": pa.parquet.write_table, "arrow": pa.feather.write_feather}
FORMATS = pytest.mark.parametrize("source", WRITERS)


def read(folder: Path, source: str, **more: Any) -> Features:
    return load_features(data({"source": source, "path": "t", "key": "id", **more}), PartyIndex(0, 1), folder)


def write(folder: Path, source: str, **files: dict[str, Any]) -> None:
    for name, columns in files.items():
        path = folder / "t" / f"{name}.{source}"
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[source](pa.table(columns), path)


FIRST = {"id": ["a", "b"], "age": [1, 2], "town": ["Ulm", "Bonn"]}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another name": ({"id": ["c"], "Age": [3], "town": ["Ulm"]}, r"2\.\w+ has no column 'age', which 1\.\w+ has \(did"),
    "missing": ({"id": ["c"], "town": ["Ulm"]}, r"2\.\w+ has no column 'age', which 1\.\w+ has"),
    "new": ({"id": ["c"], "age": [3], "town": ["Ulm"], "b": [1]}, r"1\.\w+ has no column 'b', which 2\.\w+ has"),
    "words": (
        {"id": ["c"], "age": ["3"], "town": ["Ulm"]},
        r"2\.\w+: the column 'age' is of type string, and in 1\.\w+",
    ),
    "truth": (
        {"id": ["c"], "age": [True], "town": ["Ulm"]},
        r"2\.\w+: the column 'age' is of type bool, and in 1\.\w+",
    ),
    "key": ({"id": [3], "age": [3], "town": ["Ulm"]}, r"2\.\w+: the column 'id' is of type int64, and in 1\.\w+"),
    "no key": ({"ID": ["c"], "age": [3], "town": ["Ulm"]}, r"2\.\w+ has no column 'id', which 1\.\w+ has \(did"),
}


@FORMATS
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("missing", ["refuse", "mean", "zero"])
def test_files_that_differ_are_refused_by_file_and_column(
    tmp_path: Path, source: str, other: str, missing: str
) -> None:
    columns, said = OTHERS[other]
    write(tmp_path, source, **{"1": FIRST, "2": columns})
    more = {"drop": ["ID"]} if other == "no key" else {}
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, source, missing=missing, **more)
    assert caught.value.hint


@FORMATS
def test_columns_that_differ_may_be_left_out(tmp_path: Path, source: str) -> None:
    write(tmp_path, source, **{"1": FIRST, "2": OTHERS["another name"][0]})
    found = read(tmp_path, source, drop=["age", "Age"])
    assert found.names == ("town",) and found.ids == ("a", "b", "c")
    assert read(tmp_path, source, columns=["town"]).names == ("town",)


@FORMATS
def test_labels_that_differ_are_refused(tmp_path: Path, source: str) -> None:
    write(tmp_path, source, **{"1": {"id": ["a", "b"], "y": ["no", "yes"]}, "2": {"id": ["c"], "Y": ["no"]}})
    config = TypeAdapter(LabelConfig).validate_python({"source": source, "path": "t", "key": "id", "label": "y"})
    with pytest.raises(DataError, match=r"2\.\w+ has no column 'y', which 1\.\w+ has \(did you mean 'Y'"):
        load_labels(config, tmp_path)


@FORMATS
@pytest.mark.parametrize("first", [True, False])
def test_a_column_without_any_value_has_the_type_of_the_other_files(tmp_path: Path, source: str, first: bool) -> None:
    empty, filled = {"id": ["a", "b"], "town": pa.nulls(2)}, {"id": ["c", "d"], "town": ["Ulm", None]}
    write(tmp_path, source, **{"1": empty if first else filled, "2": filled if first else empty})
    found = read(tmp_path, source, missing="mean")
    assert found.fields[0].words == ("Ulm",) and found.values.isnan().sum() == 3
    with pytest.raises(DataError, match=r"[12]\.\w+, row [12], column 'town': the value is missing"):
        read(tmp_path, source)


NUMBERS = [pa.int8(), pa.int64(), pa.uint32(), pa.float32(), pa.float64(), pa.decimal128(22, 2)]


@given(st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_numbers_of_several_types_are_numbers(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[pa.DataType], draw: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    values = [[draw.randrange(100) for _ in range(3)] for _ in kinds]
    files = {
        str(place): {"id": [f"{place}-{row}" for row in range(3)], "x": pa.array(some).cast(kind)}
        for place, (some, kind) in enumerate(zip(values, kinds, strict=True))
    }
    write(folder, "parquet", **files)
    assert read(folder, "parquet").values[:, 0].tolist() == [float(x) for some in values for x in some]
    as_words = read(folder, "parquet", types={"x": "category"})
    assert {*(as_words.fields[0].words or ())} <= {str(float(x)) for some in values for x in some} | {
        str(x) for some in values for x in some
    } | {f"{x}.00" for some in values for x in some}


@pytest.mark.parametrize("order", list(itertools.permutations(("int8", "uint64", "int64", "decimal"))))
def test_whole_numbers_of_every_size_are_exact(tmp_path: Path, order: tuple[str, ...]) -> None:
    kinds = {"int8": (7, pa.int8()), "uint64": (2**64 - 1, pa.uint64()), "int64": (-(2**63), pa.int64())}
    kinds["decimal"] = 2**62, pa.decimal128(38)
    for number, name in enumerate(order):
        (tmp_path / "t").mkdir(exist_ok=True)
        one = pa.array([kinds[name][0]], kinds[name][1])
        pa.parquet.write_table(pa.table({"id": one, "code": one, "x": one}), tmp_path / "t" / f"{number}.parquet")
    found = read(tmp_path, "parquet", types={"code": "category"})
    expected = [str(kinds[name][0]) for name in order]
    assert found.ids == tuple(expected) and {*(found.fields[0].words or ())} == {*expected}
    assert found.values[:, 1].tolist() == [float(one) for one in expected]


def test_times_that_a_finer_unit_cannot_hold_are_refused(tmp_path: Path) -> None:
    late, now = pa.array([2**63 - 1], pa.timestamp("ms")), pa.array([0], pa.timestamp("us"))
    write(tmp_path, "parquet", **{"1": {"id": ["a"], "x": late}, "2": {"id": ["b"], "x": now}})
    with pytest.raises(DataError, match="out of bounds timestamp"):
        read(tmp_path, "parquet", types={"x": "date"})


def test_codes_are_the_same_words_in_files_of_whole_numbers_and_of_fractions(tmp_path: Path) -> None:
    """pandas makes 1.0 of 1 in a file where a code is missing."""
    write(tmp_path, "parquet", **{"1": {"id": ["a", "b"], "x": [1, 2]}, "2": {"id": ["c", "d"], "x": [1.0, None]}})
    assert read(tmp_path, "parquet", types={"x": "category"}, missing="mean").fields[0].words == ("1", "2")


def test_names_of_folders_are_columns_of_text(tmp_path: Path) -> None:
    rows = {
        "id": [f"k{row}" for row in range(6)],
        "branch": ["A", "B", "A/C", "A", "B", None],
        "code": ["007", "7", "007", "7", "7", "07"],
    }
    pa.parquet.write_to_dataset(pa.table(rows), tmp_path / "t", partition_cols=["branch", "code"])
    found = read(tmp_path, "parquet", missing="mean", types={"code": "category"})
    assert found.names == ("branch", "code")
    read_back = {
        key: tuple(
            None if value.isnan() else (field.words or ())[int(value)]
            for field, value in zip(found.fields, row, strict=True)
        )
        for key, row in zip(found.ids or (), found.values, strict=True)
    }
    assert read_back == {key: (rows["branch"][n], rows["code"][n]) for n, key in enumerate(rows["id"])}
    with pytest.raises(DataError, match=r"branch=__HIVE_DEFAULT_PARTITION__.*column 'branch': the value is missing"):
        read(tmp_path, "parquet", types={"code": "category"})


def test_a_column_in_the_files_and_in_the_names_of_folders_is_one(tmp_path: Path) -> None:
    write(tmp_path, "parquet", **{"x=1/p": {"id": ["a"], "x": [1]}, "x=2/p": {"id": ["b"], "x": [2]}})
    assert read(tmp_path, "parquet").values.tolist() == [[1], [2]]


OTHER_FOLDERS = {"word": (["A"], "B"), "number": ([1], "2"), "null": ([None, "A"], "A"), "truth": ([True], "false")}


@FORMATS
@pytest.mark.parametrize("case", OTHER_FOLDERS)
def test_a_column_that_differs_from_the_name_of_its_folder_is_refused(tmp_path: Path, source: str, case: str) -> None:
    values, folder = OTHER_FOLDERS[case]
    ids = [f"k{row}" for row in range(len(values))]
    write(tmp_path, source, **{f"x={folder}/p": {"id": ids, "x": values, "y": [1] * len(ids)}})
    with pytest.raises(DataError, match=rf"p\.{source}: the column 'x' has .* in the file, and the folder's name says"):
        read(tmp_path, source, missing="mean")
    assert read(tmp_path, source, drop=["x"]).names == ("y",)


@FORMATS
def test_a_key_of_different_types_blames_no_sound_file(tmp_path: Path, source: str) -> None:
    write(tmp_path, source, **{"1": {"id": [1, 2], "x": [1, 2]}, "2": {"id": [3.0], "x": [3]}})
    with pytest.raises(DataError, match=r"/t, column 'id': is of type double"):
        read(tmp_path, source)


def test_a_partition_alone_may_be_the_only_feature(tmp_path: Path) -> None:
    write(tmp_path, "parquet", **{"x=1/p": {"id": ["a", "b"]}, "x=2/p": {"id": ["c"]}})
    found = read(tmp_path, "parquet")
    assert found.values.tolist() == [[1], [1], [2]] and found.ids == ("a", "b", "c")


@FORMATS
@pytest.mark.parametrize("far", [False, True])
def test_files_of_rows_that_are_left_out_are_named(tmp_path: Path, source: str, far: bool) -> None:
    one = {"id": ["a", "b"], "x": [0, 1]}
    write(tmp_path, source, **{"1": one, "_2": one, "_tmp/3": one, "._1": one})
    for name in ("_SUCCESS", "_metadata", f".1.{source}.crc"):
        (tmp_path / "t" / name).touch()
    path = f"file://{tmp_path}/t" if far else "t"
    found = read(tmp_path, source, path=path)
    assert [doubt.column for doubt in found.doubts] == [f"_2.{source}", f"_tmp/3.{source}"] and found.ids == ("a", "b")
    config = {"source": source, "path": path, "key": "id", "label": "x"}
    assert "_2" in str(load_labels(TypeAdapter(LabelConfig).validate_python(config), tmp_path).doubts[0])


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/hoodie.properties"])
def test_a_folder_whose_log_says_which_rows_count_is_refused(tmp_path: Path, log: str) -> None:
    write(tmp_path, "parquet", **{"1": {"id": ["a", "b"], "x": [0, 1]}})
    (tmp_path / "t" / log).parent.mkdir()
    (tmp_path / "t" / log).touch()
    with pytest.raises(DataError, match=r"is a table of \w+.*: its folder also has rows that were deleted"):
        read(tmp_path, "parquet")


# --- the row index of pandas

FRAME = pd.DataFrame({"id": ["a", "b", "c"], "x": [0.5, 1.5, 2.5]}, index=[2, 0, 1])
INDICES: dict[str, tuple[pd.DataFrame, tuple[str, ...]]] = {
    "without a name": (FRAME, ("__index_level_0__",)),
    "with a name": (FRAME.rename_axis("row"), ("row",)),
    "of several levels": (FRAME.set_index([FRAME.index, [3, 4, 5]]), ("__index_level_0__", "__index_level_1__")),
    "of several names": (
        FRAME.set_index(pd.MultiIndex.from_arrays([[1, 2, 3], list("xyz")], names=["u", "v"])),
        ("u", "v"),
    ),
    "of time": (FRAME.set_index(pd.date_range("2024-01-01", periods=3, name="day")), ("day",)),
}


def written(frame: pd.DataFrame, folder: Path, source: str) -> None:
    (folder / "t").mkdir(exist_ok=True)
    WRITERS[source](pa.Table.from_pandas(frame), folder / "t" / f"1.{source}")


@FORMATS
@pytest.mark.parametrize("index", INDICES)
def test_an_index_is_no_feature_and_it_is_said(tmp_path: Path, source: str, index: str) -> None:
    frame, names = INDICES[index]
    written(frame, tmp_path, source)
    found = read(tmp_path, source)
    assert found.names == ("x",) and found.ids == ("a", "b", "c")
    assert [doubt.column for doubt in found.doubts if "row index" in str(doubt)] == [*names]
    assert not read(tmp_path, source, drop=[*names]).doubts
    if index != "of time":
        assert read(tmp_path, source, columns=[*names]).names == names  # who names it wants it


@FORMATS
def test_an_index_may_be_the_key(tmp_path: Path, source: str) -> None:
    written(FRAME.set_index("id"), tmp_path, source)
    found = read(tmp_path, source)
    assert (found.names, found.ids, found.doubts) == (("x",), ("a", "b", "c"), ())


@FORMATS
def test_an_index_that_was_not_written_is_explained(tmp_path: Path, source: str) -> None:
    written(FRAME.reset_index(drop=True).drop(columns="id").rename_axis("id"), tmp_path, source)
    with pytest.raises(
        DataError, match="no column 'id': it is the name of a row index, which pandas did not"
    ) as caught:
        read(tmp_path, source)
    assert "reset_index" in caught.value.hint


def test_an_index_of_a_file_without_metadata_is_none_either(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    bare = pa.Table.from_pandas(FRAME).replace_schema_metadata({b"pandas": b"{torn"})
    pa.parquet.write_table(bare, tmp_path / "t" / "1.parquet")
    assert read(tmp_path, "parquet").names == ("x",)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("convert", [lambda frame: frame, pa.Table.from_pandas])
def test_tables_in_memory_are_read_alike(tmp_path: Path, index: str, convert: Any) -> None:
    InMemoryTable("bank", convert(INDICES[index][0])).write(tmp_path / "t")
    assert read(tmp_path, "arrow").names == ("x",)


def test_columns_of_no_use_are_named(tmp_path: Path) -> None:
    InMemoryTable("bank", FRAME.assign(age=pd.cut(FRAME["x"], 2))).write(tmp_path / "t")
    with pytest.raises(DataError, match=r"row 1, column 'age': is of type struct<left.*neither a number nor a word"):
        read(tmp_path, "arrow")
    with pytest.raises(DataError, match=r"^tables\['bank'\], column 'age', cannot be read"):
        InMemoryTable("bank", FRAME.assign(age=[1, "x", 2.5])).write(tmp_path / "u")
    with pytest.raises(DataError, match=r"^tables\['bank'\], column 'age', cannot be read") as caught:
        InMemoryTable("bank", pl.DataFrame({"x": [1], "age": pl.Series([2], dtype=pl.Int128)})).write(tmp_path / "u")
    assert "64 bits" in caught.value.hint and not (tmp_path / "u").exists()


STORED = {
    "pandas.period": pd.period_range("2024-01", periods=3, freq="M"),
    "arrow.opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "bank"), pa.array([1, 2, 3])),
    "bank.money": pa.array([1, 2, 3]),  # known by the schema's metadata alone, as periods are without pandas
    "arrow.json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['"a"', "1", "{}"])),
}


@FORMATS
@pytest.mark.parametrize("role", ["x", "id"])
@pytest.mark.parametrize("name", STORED)
def test_stored_numbers_and_texts_of_extension_types_are_not_taken_for_values(
    tmp_path: Path, source: str, name: str, role: str
) -> None:
    column = STORED[name]
    table = pa.table({"id": ["a", "b", "c"], "x": [1, 2, 3], role: pa.array(column)})
    if name == "bank.money":
        as_money = pa.field(role, pa.int64(), metadata={"ARROW:extension:name": name})
        table = table.cast(pa.schema([as_money if field.name == role else field for field in table.schema]))
    WRITERS[source](table, tmp_path / "t")
    with pytest.raises(DataError, match=rf"column '{role}' is of the extension type {name}") as caught:
        read(tmp_path, source)
    assert caught.value.hint
    with pytest.raises(DataError, match=name):
        [*ArrowTable(table, "t").batches([role])]


# --- types around the values

WORDS = ["Ulm", "Bonn", None, "Ulm"]


def categorical(words: list[str | None], of: pa.DataType, index: pa.DataType) -> pa.Array:
    known = sorted({word for word in words if word is not None})
    codes = pa.array([None if word is None else known.index(word) for word in words], index)
    return pa.DictionaryArray.from_arrays(codes, pa.array(known, of))


AROUND = {
    "large": pa.array(WORDS, pa.large_string()),
    "views": pa.array(WORDS, pa.string_view()),
    "dictionary": categorical(WORDS, pa.string(), pa.int8()),
    "dictionary of large ones": categorical(WORDS, pa.large_string(), pa.uint32()),
    "dictionary of views": categorical(WORDS, pa.string_view(), pa.uint32()),
    "runs": pc.run_end_encode(pa.array(WORDS)),
}


@pytest.mark.parametrize("around", AROUND)
def test_words_are_the_same_in_every_type(around: str) -> None:
    found = cells.decoded(AROUND[around])
    assert found.type == pa.string() == cells.plain_type(AROUND[around].type) and found.to_pylist() == WORDS


@pytest.mark.parametrize("around", [name for name in AROUND if name != "runs"])
def test_keys_words_and_labels_are_read_in_every_type(tmp_path: Path, around: str) -> None:
    column = AROUND[around]
    words, kind = ["k1", "k2", "k3", "k4"], column.type
    keys = (
        categorical(words, kind.value_type, kind.index_type) if pa.types.is_dictionary(kind) else pa.array(words, kind)
    )
    pa.feather.write_feather(pa.table({"id": keys, "town": column}), tmp_path / "t", compression="uncompressed")
    found = read(tmp_path, "arrow", missing="mean")
    assert found.fields[0].words == ("Bonn", "Ulm") and found.ids == ("k1", "k2", "k3", "k4")
    config = TypeAdapter(LabelConfig).validate_python(
        {"source": "arrow", "path": "t", "key": "id", "label": "town", "missing": "drop"}
    )
    assert load_labels(config, tmp_path).classes == ("Bonn", "Ulm")


CODES = {
    "whole numbers": (pd.Categorical([3, 1, None, 3]), ("1", "3")),
    "fractions": (pd.Categorical([0.5, 2, None, 0.5]), ("0.5", "2")),
    "Booleans": (pd.Categorical([True, False, None, True]), ("false", "true")),
    "digits": (pd.Categorical(["07", "7", None, "07"]), ("07", "7")),
}


@pytest.mark.parametrize("codes", CODES)
def test_a_category_by_its_type_is_none_of_numbers(tmp_path: Path, codes: str) -> None:
    column, words = CODES[codes]
    frame = pd.DataFrame({"id": list("abcd"), "x": column})
    frame.to_parquet(tmp_path / "t")
    assert read(tmp_path, "parquet", missing="mean").fields[0].words == words
    in_two = pa.concat_tables([pa.table(frame.iloc[:1]), pa.table(frame.iloc[1:])])
    for table in (frame, pa.parquet.read_table(tmp_path / "t"), in_two):
        InMemoryTable("bank", table).write(tmp_path / "t")
        assert read(tmp_path, "arrow", missing="mean").fields[0].words == words
    if codes == "whole numbers":
        assert read(tmp_path, "arrow", missing="mean", types={"x": "number"}).fields[0].words is None


def test_dates_of_several_units_are_dates(tmp_path: Path) -> None:
    day = datetime.date(2024, 3, 1)
    files = {"1": {"id": ["a"], "d": [day]}, "2": {"id": ["b"], "d": pa.array([day]).cast(pa.timestamp("ns"))}}
    write(tmp_path, "parquet", **files)
    assert len(set(read(tmp_path, "parquet", types={"d": "date"}).values[:, 0].tolist())) == 1


def test_an_address_is_read_like_a_path(tmp_path: Path) -> None:
    (tmp_path / "t" / "a=1").mkdir(parents=True)
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "t" / "a=1" / "0.parquet")
    here, there = (ArrowFiles(path, "parquet") for path in (tmp_path / "t", f"file://{tmp_path}/t"))
    assert here.header == there.header == ("x", "a")
    assert [*here.batches(["a", "x"])] == [*there.batches(["a", "x"])]
    assert here.place(1) == f"{tmp_path}/t/a=1/0.parquet, row 2" and there.place(1) == f"file://{here.place(1)}"
