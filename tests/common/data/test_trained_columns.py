"""A table for a trained model is read by the names and types of training, whatever it looks like this month."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.data.columns.encode import EncodeConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import load_features, prepare_others
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import DataError
from tests.support.household import colonnade

data = TypeAdapter(DataConfig).validate_python
HEADER = ["id", "age", "code", "town"]
TRAINING = [[f"k{row}", str(20 + row), ["7", "A", "B"][row % 3], ["Ulm", "Bonn", ""][row % 3]] for row in range(12)]


def config(**more: Any) -> Any:
    return data({"source": "csv", "path": "t.csv", "key": "id", "missing": "mean", "unseen": "zero", **more})


def write(folder: Path, header: list[str], rows: list[list[str]]) -> None:
    with (folder / "t.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([header, *rows])


def trained(folder: Path, **more: Any) -> EncoderFile:
    write(folder, HEADER, TRAINING)
    features = load_features(config(**more), PartyIndex(0, 1), folder)
    EncoderFile(folder, begun=False).get(EncodeConfig("auto", "mean", "zero"), features, torch.arange(12))
    return EncoderFile(folder, begun=True)


def read(folder: Path, kept: EncoderFile, **more: Any) -> Features:
    return load_features(config(**more), PartyIndex(0, 1), folder, TableCache(folder), kept)


def values(folder: Path, kept: EncoderFile) -> torch.Tensor:
    return prepare_others(config(), read(folder, kept), 0, "bank", kept)[torch.arange(3)]


@given(st.permutations(["age", "code", "town", "new", "id"]), st.integers(0, 3))
def test_order_and_other_columns_make_no_difference(
    tmp_path_factory: pytest.TempPathFactory, order: list[str], start: int
) -> None:
    folder = tmp_path_factory.mktemp("order")
    kept = trained(folder)
    rows = [dict(zip([*HEADER, "new"], [*row, "1"], strict=True)) for row in TRAINING[3 * start : 3 * start + 3]]
    write(folder, HEADER, TRAINING[3 * start : 3 * start + 3])
    before = values(folder, kept)
    write(folder, order, [[row[name] for name in order] for row in rows])
    assert values(folder, kept).equal(before)
    (doubt,) = read(folder, kept).doubts
    assert doubt.column == "new" and "was no column of training" in str(doubt)


@pytest.mark.parametrize(
    "rows",
    {
        "codes without letters": [["k1", "30", "7", "Ulm"], ["k2", "31", "12", "Bonn"], ["k3", "32", "7", "Ulm"]],
        "an empty category": [["k1", "30", "A", ""], ["k2", "31", "7", ""], ["k3", "32", "A", ""]],
        "an empty number": [["k1", "", "A", "Ulm"], ["k2", "", "7", "Ulm"], ["k3", "", "A", "Bonn"]],
        "numbers as a town": [["k1", "1", "A", "1"], ["k2", "2", "7", "2"], ["k3", "3", "A", "3"]],
    }.values(),
)
def test_types_are_those_of_training(tmp_path: Path, rows: list[list[str]]) -> None:
    kept = trained(tmp_path)
    write(tmp_path, HEADER, rows)
    found = read(tmp_path, kept)
    assert [field.kind for field in found.fields] == ["number", "category", "category"] and not found.doubts
    encoded = values(tmp_path, kept)
    assert encoded.shape == (3, 1 + 3 + 3) and bool(encoded.isfinite().all())


def test_codes_of_numbers_are_the_words_of_training_in_a_file_with_types(tmp_path: Path) -> None:
    kept = trained(tmp_path)
    for codes in ([7, 12, 7], [7.0, None, 12.0], pa.array(["7", "12", "A"]).dictionary_encode(), pa.nulls(3)):
        table = pa.table({"town": pa.nulls(3), "code": codes, "age": [1, 2, 3], "id": ["a", "b", "c"]})
        pa.parquet.write_table(table, tmp_path / "t.parquet")
        how = config().model_dump(exclude={"delimiter", "encoding", "cache"}) | {
            "source": "parquet",
            "path": "t.parquet",
        }
        found = load_features(data(how), PartyIndex(0, 1), tmp_path, None, kept)
        assert set(found.fields[1].words or ()) <= {"7", "12", "A"} and found.names == ("age", "code", "town")


@pytest.mark.parametrize("gone", ["age", "code", "town"])
def test_a_missing_column_is_named(tmp_path: Path, gone: str) -> None:
    kept = trained(tmp_path)
    write(tmp_path, [name if name != gone else name.upper() for name in HEADER], TRAINING)
    with pytest.raises(
        DataError, match=rf"has no column '{gone}' \(did you mean '{gone.upper()}'\?\), which training had"
    ):
        read(tmp_path, kept)


def test_columns_that_training_left_out_may_be_gone(tmp_path: Path) -> None:
    kept = trained(tmp_path, drop=["town"])
    write(tmp_path, HEADER[:3], [row[:3] for row in TRAINING])
    assert read(tmp_path, kept, drop=["town"]).names == ("age", "code")


def test_a_type_may_be_declared_for_the_new_table(tmp_path: Path) -> None:
    kept = trained(tmp_path)
    write(tmp_path, HEADER, [["k1", "30 %", "A", "Ulm"], ["k2", "31 %", "7", "Ulm"]])
    assert read(tmp_path, kept, types={"age": "percent"}).values[:, 0].tolist() == pytest.approx([0.3, 0.31])


def test_a_resumed_run_reads_its_own_copy(tmp_path: Path) -> None:
    kept = trained(tmp_path)
    cache = TableCache(tmp_path, writes=True)
    first = load_features(config(), PartyIndex(0, 1), tmp_path, cache)
    cache.keep()
    again = read(tmp_path, kept)
    assert again.fingerprint == first.fingerprint


def test_a_model_predicts_from_a_table_of_another_form(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [(f"k{row:03}", draw.random(), draw.choice("AB7"), draw.choice([0, 1])) for row in range(80)]
    (tmp_path / "y.csv").write_text("id,y\n" + "".join(f"{row[0]},{row[3]}\n" for row in rows))
    (tmp_path / "t.csv").write_text("id,x,code\n" + "".join(f"{row[0]},{row[1]},{row[2]}\n" for row in rows))
    (tmp_path / "ids.csv").write_text("id\nk001\n\nk002\n\n")
    (tmp_path / "f.yaml").write_text("""
federation: {id: t, protocol: {name: split, embedding: 2}, classes: 2, align: psi, batch: 8, epochs: 1, parties: [bank]}
server: {labels: {source: csv, path: y.csv, key: id, label: y}}
parties: {bank: {data: {source: csv, path: t.csv, key: id, unseen: zero}}}
""")
    code, output = colonnade("simulate", tmp_path / "f.yaml", "--out", tmp_path / "run")
    assert code == 0, output
    (tmp_path / "t.csv").write_text("new,code,x,id\n" + "".join(f"1,7,{row[1]},{row[0]}\n" for row in rows))
    code, output = colonnade("predict", tmp_path / "run", "--ids", tmp_path / "ids.csv", "--out", tmp_path / "p.csv")
    assert code == 0, output
    assert [line.split(",")[0] for line in (tmp_path / "p.csv").read_text().splitlines()] == ["id", "k001", "k002"]
