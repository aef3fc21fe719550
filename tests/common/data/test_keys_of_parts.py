"""Keys of several columns: joined so that no two persons share one, and compared part by part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.config.alignment import KeysConfig, joined, taken_apart
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.keys import KeyColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.data.table import joined_keys
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from colonnade.launcher.prediction_files import PredictionIds
from tests.support.alignment import align, federation
from tests.support.tables import table_tree

PARTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=3)
KEY = ["first", "last", "born"]
THREE = KeysConfig(parts=3)


def csv(path: Path, *lines: str) -> DataConfig:
    path.write_text("\n".join(["first,last,born,x", *lines]), encoding="utf-8")
    found: DataConfig = TypeAdapter(DataConfig).validate_python(
        {"source": "csv", "path": str(path), "key": KEY, "types": {"x": "number"}}
    )
    return found


def ids(path: Path, *lines: str) -> tuple[str, ...]:
    return tuple(load_features(csv(path, *lines), PartyIndex(0, 1), path.parent).ids or ())


@given(PARTS, PARTS)
def test_no_two_keys_of_other_parts_are_the_same_text(one: list[str], other: list[str]) -> None:
    columns = [KeyColumn(pa.array([part], pa.large_string())) for part in one]
    assert taken_apart(joined_keys(columns)[0]) == one == taken_apart(joined(one))
    assert (joined(one) == joined(other)) == (one == other)


@given(PARTS, st.sampled_from(["fold", "keep"]))
def test_parts_are_compared_as_single_keys_are_and_again_they_stay_so(parts: list[str], case: str) -> None:
    alone = KeysConfig.model_validate({"case": case})
    together = alone.model_copy(update={"parts": len(parts)})
    normal = together.normal(joined(parts))
    assert together.normal(normal) == normal == together.normals([joined(parts)])[0]
    alike = [alone.normal(part) for part in parts]
    assert taken_apart(normal) == (alike if all(alike) else [])


def test_members_find_the_same_persons_however_they_name_and_write_the_columns(tmp_path: Path) -> None:
    keys = {
        SERVER: ids(tmp_path / "a.csv", "Ann,Lee,1970-01-02,1", "Bo,Lee,1981-03-04,2", 'a,"b"",""c",d,3', "ab,c,d,4"),
        "party1": ids(tmp_path / "b.csv", '" Bo",Lee ,1981-03-04,1', 'a,"b"",""c",d,1', "a,bc,d,1", "Ann,Lee,1,1"),
    }
    found = align(federation(1, keys={"parts": 3}), keys)
    common = {member: [THREE.normal(key) for key in own] for member, own in found.common(keys).items()}
    assert common[SERVER] == common["party1"]
    assert {tuple(taken_apart(key)) for key in common[SERVER]} == {("Bo", "Lee", "1981-03-04"), ("a", 'b","c', "d")}


def test_days_of_a_typed_table_are_keys_as_text_is(tmp_path: Path) -> None:
    days = pa.array([1, 2], pa.date32())
    pq.write_table(pa.table({"who": ["a", "a"], "born": days, "x": [1.0, 2.0]}), tmp_path / "t.parquet")
    labels = {"source": "parquet", "path": "t.parquet", "label": "x", "key": ["who", "born"]}
    found = load_labels(TypeAdapter(LabelConfig).validate_python(labels), tmp_path, "regression").ids
    assert list(found or ()) == [joined(["a", "1970-01-02"]), joined(["a", "1970-01-03"])]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("Ann,Lee,1,1", "Ann, ,1,2"), "line 3, column 'last': the value is missing"),
        (("Ann,Lee,1,1", "Ann,Lee,2,2", "Ann,Lee,1,3"), r"columns 'first', 'last', 'born': 1 key stands in several"),
        (("Ann,Lee,1.0,1", "Ann,Lee,2.0,2"), "column 'born': keys are fractions, such as 1.0"),
    ],
)
def test_wrong_parts_are_refused_with_their_place(lines: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        ids(tmp_path / "t.csv", *lines)


def test_a_part_that_is_empty_once_it_is_compared_is_no_key() -> None:
    for key in (joined(["a", "\u2003", "c"]), joined(["a", "b"]), "a", "[1,2,3]", "[" * 100_000):
        with pytest.raises(DataError, match="1 of 1 rows have no key"):
            RowKeys.of([key], THREE, "bank")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"party2": {"key": ["a", "b"]}}, "parties.party2.data.key names 'a', 'b': federation.keys.parts is 3"),
        ({"server": {"key": "a"}}, "server.labels.key names 'a': federation.keys.parts is 3"),
        ({"align": "none"}, "federation.keys.parts = 3 with federation.align = none"),
    ],
)
def test_members_with_keys_of_other_numbers_of_parts_are_refused(change: Mapping[str, object], said: str) -> None:
    tree = table_tree(keys={"parts": 3})
    sources = {"server": tree["server"]["labels"], **{name: tree["parties"][name]["data"] for name in tree["parties"]}}
    for name, source in sources.items():
        source.pop("id", None)
        source["key"] = KEY
        source.update(change.get(name, {}))
    tree["federation"]["align"] = change.get("align", "psi")
    with pytest.raises(ConfigError, match=said):
        parse(tree)


@pytest.mark.parametrize("key", [[], ["a", "a"], ["a", 1], 7, {"a": "b"}])
def test_a_key_that_names_no_columns_is_refused(key: object) -> None:
    with pytest.raises(ValidationError, match="column"):
        TypeAdapter(DataConfig).validate_python({"source": "parquet", "path": "t", "key": key})


def test_files_of_ids_have_the_columns_or_the_texts_of_predictions(tmp_path: Path) -> None:
    path, expected = tmp_path / "ids.csv", [joined(["Ann", "O, Lee", "1"]), joined(["Bo", "Lee", "2"])]
    asked = PredictionIds(path, like=tuple(KEY))
    path.write_text('born,more,first,last\n1,x,Ann,"O, Lee"\n2,x,Bo,Lee\n')
    assert list(asked.ids()) == expected
    path.write_text("id\n" + "".join('"' + id.replace('"', '""') + '"\n' for id in expected))
    assert list(asked.ids()) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("first,last,born\nAnn,Lee,1\nBo,,2\n", "line 3: a part of the id is missing"),
        ("first,last\nAnn,Lee\n", "has no column 'born'"),
        ('id\n"[""Ann"",""Lee""]"\n', "is no key of 3 parts"),
        ("id\nAnn\n", "'Ann' is no key of 3 parts"),
    ],
)
def test_wrong_files_of_ids_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        PredictionIds(tmp_path / "ids.csv", like=tuple(KEY)).count()
