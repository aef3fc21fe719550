"""Regression targets: their sources, and the scale that a model is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from sklearn import datasets

from colonnade.common.config.data.sources import LabelConfig
from colonnade.common.data.formats.tensors import labels_bytes
from colonnade.common.data.labels import LabelColumn, TargetScale
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import ConfigError, DataError

config = TypeAdapter(LabelConfig).validate_python


def read(folder: Path, **source: Any) -> LabelColumn:
    return load_labels(config(source), folder, "regression")


UNEQUAL = (lambda row: round(row[0]), lambda row: round(row[1]))
ROWS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=3, max_size=20, unique_by=UNEQUAL)


@given(ROWS)
def test_a_scale_is_undone_and_fitted_on_training_rows_alone(rows: list[tuple[float, float]]) -> None:
    values, train = torch.tensor(rows, dtype=torch.float64), torch.arange(len(rows) - 1)
    scale = TargetScale.fit(values, train)
    scaled = scale.apply(values)
    assert scaled.dtype == torch.float32
    torch.testing.assert_close(scale.undo(scaled), values, rtol=1e-5, atol=1.0)
    exact = (values[train] - scale.mean) / scale.deviation
    torch.testing.assert_close(exact.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(exact.square().mean(0), torch.ones(2, dtype=torch.float64))


def test_a_target_without_variation_is_refused() -> None:
    values = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 6.0]])
    with pytest.raises(DataError, match="target 2 is 5 in all 2 training rows"):
        TargetScale.fit(values, torch.tensor([0, 1]))


@pytest.mark.parametrize(("unit", "size"), [(1e-300, "small"), (1e300, "large")])
def test_a_target_whose_squares_float64_cannot_hold_is_refused_as_such(unit: float, size: str) -> None:
    values = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64) * unit
    with pytest.raises(DataError, match=f"target 1 is between 1e.* and 4e.* in the 3 training rows, too {size}"):
        TargetScale.fit(values, torch.arange(3))


def test_diabetes_is_that_of_scikit_learn(tmp_path: Path) -> None:
    found = read(tmp_path, source="sklearn", name="diabetes")
    theirs = datasets.load_diabetes(scaled=False)
    assert found.values.squeeze(1).tolist() == theirs.target.tolist() and found.classes == ()


def test_columns_of_a_csv_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,price,area\na,1.5,10\nb,-2,20\n")
    assert read(tmp_path, source="csv", path="t.csv", label="price", id="id").values.tolist() == [[1.5], [-2.0]]
    assert read(tmp_path, source="csv", path="t.csv", label=["area", "price"]).values.tolist() == [[10, 1.5], [20, -2]]


def test_numbers_in_tensors_come_back(tmp_path: Path) -> None:
    values = torch.randn(5, 2, dtype=torch.float64)
    (tmp_path / "l.safetensors").write_bytes(labels_bytes(LabelColumn(values, (), 2)))
    found = read(tmp_path, source="safetensors", path="l.safetensors")
    assert torch.equal(found.values, values) and found.official_test == 2 and found.classes == ()


@pytest.mark.parametrize(
    ("source", "task", "error", "message"),
    [
        (
            {"source": "sklearn", "name": "digits"},
            "regression",
            ConfigError,
            "digits.csv.gz has classes and no",
        ),
        (
            {"source": "sklearn", "name": "diabetes"},
            "classification",
            ConfigError,
            "has numbers to be",
        ),
        ({"source": "idx", "folder": "mnist"}, "regression", ConfigError, "server.labels.source = 'idx' has classes"),
        ({"source": "csv", "path": "t.csv", "label": ["a", "b"]}, "classification", ConfigError, "names 2 columns"),
        ({"source": "csv", "path": "t.csv", "label": "b"}, "regression", DataError, "line 3"),
        ({"source": "csv", "path": "t.csv", "label": "c"}, "regression", DataError, "no column 'c'"),
        (
            {"source": "safetensors", "path": "l.safetensors"},
            "regression",
            DataError,
            r"of \(rows, targets\)",
        ),
        ({"source": "safetensors", "path": "n.safetensors"}, "regression", DataError, "no finite numbers"),
    ],
)
def test_targets_that_are_not_numbers_are_refused(
    tmp_path: Path, source: dict[str, Any], task: Any, error: type[Exception], message: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1,x\n")
    (tmp_path / "l.safetensors").write_bytes(labels_bytes(LabelColumn(torch.arange(2), ("a", "b"))))
    (tmp_path / "n.safetensors").write_bytes(labels_bytes(LabelColumn(torch.tensor([[1.0], [torch.nan]]), ())))
    with pytest.raises(error, match=message):
        load_labels(config(source), tmp_path, task)


@pytest.mark.parametrize("cell", ["12.50 EUR", "n/a", "20 %", "2024-01-01"])
def test_hints_on_a_label_name_no_key_that_labels_do_not_have(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text(f"a\n1.5\n{cell}\n")
    with pytest.raises(DataError, match="line 3") as refused:
        read(tmp_path, source="csv", path="t.csv", label="a")
    assert "plain numbers" in refused.value.hint and "federation.task to classification" in refused.value.hint
    assert not any(f"`{key}" in refused.value.hint for key in ("types", "units", "drop"))
