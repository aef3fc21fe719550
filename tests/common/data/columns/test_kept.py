import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.data.columns import MeanStd, ScaleConfig
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.errors import CheckpointError, DataError

TRAIN = torch.tensor([0, 2])
TABLE = Features(
    torch.tensor([[1 / 3, 0.0], [2.0, 1.0], [float("nan"), 1.0]], dtype=torch.float64),
    ("age", "town"),
    0,
    ("ann", "bob", "cy"),
    (TypedColumn("age"), TypedColumn("town", ("Kiel", "Ulm"))),
)
HOW = EncodeConfig("standard", missing="median", unseen="zero")


def begun(folder: Path, features: Features = TABLE, how: EncodeConfig = HOW) -> Encoder:
    return EncoderFile(folder, begun=True).get(how, features, TRAIN)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    EncoderFile(tmp_path, begun=False).get(HOW, TABLE, TRAIN)
    return tmp_path


def test_a_run_that_goes_on_has_the_same(folder: Path) -> None:
    fitted = Encoder.fit(HOW, TABLE, TRAIN)
    for kept in (begun(folder), EncoderFile(folder, begun=True).read()):
        assert kept.codes == fitted.codes and kept.config == HOW
        assert torch.equal(kept.apply(TABLE), fitted.apply(TABLE))
    assert (folder / "encoder.json").stat().st_mode & 0o777 == 0o600


@given(
    scale=st.sampled_from(["none", "unit", "standard", MeanStd(mean=0.1307, std=0.3081)]),
    dtype=st.sampled_from([torch.uint8, torch.float64]),
    seed=st.integers(0, 99),
)
def test_the_scale_of_plain_values_is_restored_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, scale: ScaleConfig, dtype: torch.dtype, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    values = torch.rand(5, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 255
    features = Features(values.to(dtype), tuple("abcdef"))
    fitted = EncoderFile(folder, begun=False).get(EncodeConfig(scale), features, TRAIN)
    assert torch.equal(EncoderFile(folder, begun=True).read().apply(features), fitted.apply(features))


def test_bends_of_long_tails_are_restored_to_the_last_bit(tmp_path: Path) -> None:
    values = torch.randn(500, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64).mul(3).exp()
    features, every = Features(values, ("paid", "owed")), torch.arange(500)
    fitted = EncoderFile(tmp_path, begun=False).get(EncodeConfig("auto"), features, every)
    assert fitted.scaler.bends is not None
    assert torch.equal(EncoderFile(tmp_path, begun=True).read().apply(features), fitted.apply(features))


@pytest.mark.parametrize("what", ["value", "word", "key", "order", "name"])
def test_a_table_that_has_changed_is_refused(folder: Path, what: str) -> None:
    values = TABLE.values.clone()
    values[1, 0] = 2.5
    changed = {
        "value": dataclasses.replace(TABLE, values=values),
        "word": dataclasses.replace(TABLE, fields=(TypedColumn("age"), TypedColumn("town", ("Kiel", "Unna")))),
        "key": dataclasses.replace(TABLE, ids=("ann", "bob", "di")),
        "order": TABLE.rows(torch.tensor([1, 0, 2])),
        "name": dataclasses.replace(TABLE, names=("age", "city")),
    }
    with pytest.raises(DataError, match="the table has changed since the run was begun"):
        begun(folder, changed[what])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("scale", "unit", "= standard and"), ("missing", "mean", "= median"), ("unseen", "refuse", "= zero")],
)
def test_another_configuration_is_refused(folder: Path, key: str, value: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=f"begun with data.{key} {said}"):
        begun(folder, how=dataclasses.replace(HOW, **{key: value}))


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}'])
def test_a_torn_file_is_refused(folder: Path, content: str) -> None:
    (folder / "encoder.json").write_text(content)
    with pytest.raises(CheckpointError, match="is torn or was altered"):
        begun(folder)


@pytest.mark.parametrize(("key", "value"), [("values", [1.0, 2.0, 3.0]), ("shape", [7]), ("dtype", "int8")])
def test_a_tensor_that_is_not_whole_is_refused(folder: Path, key: str, value: object) -> None:
    record = json.loads((folder / "encoder.json").read_text())
    record["shift"][key] = value
    (folder / "encoder.json").write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="is torn or was altered"):
        begun(folder)


def test_before_the_run_has_begun_a_table_may_change(folder: Path) -> None:
    other = TABLE.rows(torch.tensor([1, 0, 2]))
    fitted = EncoderFile(folder, begun=False).get(HOW, other, TRAIN)
    assert torch.equal(begun(folder, other).apply(other), fitted.apply(other))


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no .*encoder\.json"):
        EncoderFile(tmp_path, begun=True).read()
