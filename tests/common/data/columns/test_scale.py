import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from colonnade.common.data.columns.scale import Columns, MeanStd, ScaleConfig, Scaler

BYTES = torch.arange(0, 240, 10, dtype=torch.uint8).reshape(4, 2, 3)
TABLE = torch.tensor([[1.0, -4.0, 7.0], [3.0, 2.0, 7.0], [100.0, 8.0, 7.0]], dtype=torch.float64)
TRAIN = torch.tensor([0, 1])


def scaled(scale: ScaleConfig, values: Tensor, rows: Tensor = TRAIN) -> Tensor:
    return Scaler.fit(scale, values, rows).apply(values)


def test_none_changes_the_dtype_only() -> None:
    assert torch.equal(scaled("none", BYTES), BYTES.float())


def test_unit_of_bytes() -> None:
    torch.testing.assert_close(scaled("unit", BYTES), BYTES.float() / 255)


def test_unit_of_a_table_goes_by_the_training_rows_largest_magnitude() -> None:
    expected = torch.tensor([[1 / 3, -1.0, 1.0], [1.0, 0.5, 1.0], [100 / 3, 2.0, 1.0]])
    torch.testing.assert_close(scaled("unit", TABLE), expected)


def test_unit_leaves_a_column_of_zeros_alone() -> None:
    assert scaled("unit", torch.zeros(3, 1)).tolist() == [[0.0]] * 3


def test_mean_and_std_come_after_unit_for_bytes() -> None:
    expected = (BYTES.float() / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(scaled(MeanStd(mean=0.1307, std=0.3081), BYTES), expected)


def test_mean_and_std_of_a_table() -> None:
    torch.testing.assert_close(scaled(MeanStd(mean=1, std=2), TABLE), ((TABLE - 1) / 2).float())


def test_standard_fits_training_rows_only() -> None:
    expected = torch.tensor([[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [98.0, 3.0, 0.0]])
    torch.testing.assert_close(scaled("standard", TABLE), expected)


def test_standard_keeps_what_float32_would_lose() -> None:
    stamps = torch.tensor([[1.7e9], [1.7e9 + 1]], dtype=torch.float64)
    assert scaled("standard", stamps).tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize("scale", ["none", "unit", "standard", MeanStd(mean=0.5, std=2)])
@pytest.mark.parametrize("values", [BYTES, TABLE, TABLE.float()])
def test_gives_float32_of_the_same_shape_and_leaves_its_argument_alone(scale: ScaleConfig, values: Tensor) -> None:
    before = values.clone()
    after = scaled(scale, values)
    assert after.dtype == torch.float32 and after.shape == values.shape
    assert torch.equal(values, before)


@given(st.floats(-1e6, 1e6), st.sampled_from(["unit", "standard"]))
def test_other_rows_do_not_change_the_fit(other: float, scale: ScaleConfig) -> None:
    changed = TABLE.clone()
    changed[2] = other
    first, second = Scaler.fit(scale, TABLE, TRAIN), Scaler.fit(scale, changed, TRAIN)
    assert torch.equal(first.shift, second.shift) and torch.equal(first.spread, second.spread)


@pytest.mark.parametrize("value", ["max", {"mean": 0.0, "std": 0.0}, {"mean": 0.0}, {"mean": 0, "std": 1, "x": 1}])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ScaleConfig).validate_python(value)


@pytest.mark.parametrize("scale", ["unit", "standard", "none", MeanStd(mean=0.1307, std=0.3081)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_columns_asked_for_row_by_row_are_the_whole_scaled_at_once(scale: ScaleConfig, dtype: torch.dtype) -> None:
    values = torch.randint(0, 256, (40, 3, 2), generator=torch.Generator().manual_seed(3)).to(dtype)
    scaler = Scaler.fit(scale, values, torch.arange(30))
    columns = Columns(values, scaler).to(torch.device("cpu"))
    rows = torch.tensor([5, 0, 39, 5])
    assert columns.shape == (40, 3, 2)
    assert columns[rows].dtype == torch.float32
    assert torch.equal(columns[rows], scaler.apply(values)[rows])
