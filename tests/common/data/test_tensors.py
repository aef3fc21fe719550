"""Columns and labels in safetensors files: they read back equal, and errors are named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from safetensors.torch import save
from torch import Tensor

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.tensors import columns_bytes, labels_bytes
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError

data = TypeAdapter(DataConfig).validate_python
labels = TypeAdapter(LabelConfig).validate_python
ALONE = PartyIndex(0, 1)


def columns_of(folder: Path, member: PartyIndex = ALONE, **more: Any) -> Features:
    return load_features(data({"source": "safetensors", "path": "c.safetensors", **more}), member, folder)


def labels_of(folder: Path) -> LabelColumn:
    return load_labels(labels({"source": "safetensors", "path": "l.safetensors"}), folder)


@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    bytes_=st.booleans(),
    seed=st.integers(0, 99),
    test=st.integers(0, 3),
)
def test_columns_come_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], bytes_: bool, seed: int, test: int
) -> None:
    folder, draw = tmp_path_factory.mktemp("columns"), torch.Generator().manual_seed(seed)
    values = torch.rand(shape, generator=draw, dtype=torch.float64)
    values = (values * 255).to(torch.uint8) if bytes_ else values
    names = tuple(f"n{n}" for n in range(values[0].numel()))
    written = Features(values, names, min(test, len(values) - 1))
    (folder / "c.safetensors").write_bytes(columns_bytes(written))
    found = columns_of(folder)
    assert found.fingerprint == written.fingerprint and found.official_test == written.official_test
    assert found.values.shape == values.shape


def test_columns_can_be_split_and_need_no_names(tmp_path: Path) -> None:
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    (tmp_path / "c.safetensors").write_bytes(save({"values": values}))
    parts = [columns_of(tmp_path, PartyIndex(member, 2), split="columns") for member in (0, 1)]
    assert torch.equal(torch.cat([part.values for part in parts], 1), values.double())
    assert parts[1].names == ("column_2", "column_3")


def test_labels_come_back(tmp_path: Path) -> None:
    written = LabelColumn(torch.tensor([1, 0, 2, 1]), ("a", "b", "c"), 1)
    (tmp_path / "l.safetensors").write_bytes(labels_bytes(written))
    found = labels_of(tmp_path)
    assert found.values.tolist() == [1, 0, 2, 1] and found.classes == ("a", "b", "c") and found.official_test == 1


@pytest.mark.parametrize(
    ("tensors", "more", "fault"),
    [
        ({"other": torch.ones(2, 2)}, {}, "cannot be read"),
        ({"values": torch.ones(3)}, {}, r"expected `values` of \(rows, columns\) or more"),
        ({"values": torch.ones(3, 2, dtype=torch.int64)}, {}, "bytes or floats, got"),
        ({"values": torch.ones(0, 2)}, {}, "expected `values`"),
        ({"values": torch.tensor([[1.0, float("nan")]])}, {}, "no finite numbers"),
        ({"values": torch.ones(3, 2)}, {"names": json.dumps(["a"])}, "1 `names` for 2 columns"),
        ({"values": torch.ones(3, 2)}, {"names": "[1, 2]"}, "no list of words"),
        ({"values": torch.ones(3, 2)}, {"names": "["}, "`names` in its metadata is no JSON"),
        ({"values": torch.ones(3, 2)}, {"official_test": "3"}, "`official_test` is 3, of 3 rows"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, tensors: dict[str, Tensor], more: dict[str, str], fault: str) -> None:
    (tmp_path / "c.safetensors").write_bytes(save(tensors, more))
    with pytest.raises(DataError, match=fault) as wrong:
        columns_of(tmp_path)
    assert str(tmp_path / "c.safetensors") in str(wrong.value) and wrong.value.hint


@pytest.mark.parametrize(
    ("tensor", "more", "fault"),
    [
        (torch.ones(3), {}, r"expected `values` of \(rows,\), int64"),
        (torch.tensor([0, -1]), {}, "the label -1 is none of"),
        (torch.tensor([0, 2]), {"classes": json.dumps(["a", "b"])}, "the label 2 is none of 2 classes"),
    ],
)
def test_wrong_labels_are_named(tmp_path: Path, tensor: Tensor, more: dict[str, str], fault: str) -> None:
    (tmp_path / "l.safetensors").write_bytes(save({"values": tensor}, more))
    with pytest.raises(DataError, match=fault):
        labels_of(tmp_path)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    whole = columns_bytes(Features(torch.ones(4, 4, dtype=torch.float64), tuple("abcd")))
    (tmp_path / "c.safetensors").write_bytes(whole[:-8])
    with pytest.raises(DataError, match="cannot be read"):
        columns_of(tmp_path)
