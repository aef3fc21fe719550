import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from colonnade.common.config.data.columns import MeanStd, ScaleConfig
from colonnade.common.data.columns.scale import Columns, Scaler

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


@pytest.mark.parametrize("scale", ["none", "unit", "standard", "auto", MeanStd(mean=0.5, std=2)])
@pytest.mark.parametrize("values", [BYTES, TABLE, TABLE.float()])
def test_gives_float32_of_the_same_shape_and_leaves_its_argument_alone(scale: ScaleConfig, values: Tensor) -> None:
    before = values.clone()
    after = scaled(scale, values)
    assert after.dtype == torch.float32 and after.shape == values.shape
    assert torch.equal(values, before)


@given(st.floats(-1e6, 1e6), st.sampled_from(["unit", "standard", "auto"]))
def test_other_rows_do_not_change_the_fit(other: float, scale: ScaleConfig) -> None:
    changed = TABLE.clone()
    changed[2] = other
    first, second = Scaler.fit(scale, TABLE, TRAIN), Scaler.fit(scale, changed, TRAIN)
    assert torch.equal(first.shift, second.shift) and torch.equal(first.spread, second.spread)


@pytest.mark.parametrize("value", ["max", {"mean": 0.0, "std": 0.0}, {"mean": 0.0}, {"mean": 0, "std": 1, "x": 1}])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ScaleConfig).validate_python(value)


@pytest.mark.parametrize("scale", ["unit", "standard", "auto", "none", MeanStd(mean=0.1307, std=0.3081)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_columns_asked_for_row_by_row_are_the_whole_scaled_at_once(scale: ScaleConfig, dtype: torch.dtype) -> None:
    values = torch.randint(0, 256, (40, 3, 2), generator=torch.Generator().manual_seed(3)).to(dtype)
    scaler = Scaler.fit(scale, values, torch.arange(30))
    columns = Columns(values, scaler).to(torch.device("cpu"))
    rows = torch.tensor([5, 0, 39, 5])
    assert columns.shape == (40, 3, 2)
    assert columns[rows].dtype == torch.float32
    assert torch.equal(columns[rows], scaler.apply(values)[rows])


def amounts(rows: int = 2000) -> Tensor:
    """Three columns: normal, lognormal with a long tail, and mostly zero with a few large amounts."""
    draws = torch.Generator().manual_seed(1)
    normal = torch.randn(rows, 3, generator=draws, dtype=torch.float64)
    paid = torch.where(normal[:, 2] > 1, (4 * normal[:, 2]).exp(), 0.0)
    return torch.stack([normal[:, 0], (2.5 * normal[:, 1]).exp(), paid], 1)


def test_auto_is_standard_without_long_tails() -> None:
    plain, every = amounts()[:, :1], torch.arange(2000)
    rare = torch.cat([plain, torch.zeros(2000, 1, dtype=torch.float64)], 1)
    rare[7, 1] = 1.0  # far out, and a code rather than an amount
    for values in (plain, rare):
        assert torch.equal(scaled("auto", values, every), scaled("standard", values, every))


def test_auto_bends_long_tails_in_their_order_and_leaves_the_other_columns_alone() -> None:
    values, every = amounts(), torch.arange(2000)
    plain, bent = scaled("standard", values, every), scaled("auto", values, every)
    assert torch.equal(bent[:, 0], plain[:, 0])
    assert (plain[:, 1:].abs().amax(0) > 15).all() and (bent[:, 1:].abs().amax(0) < 12).all()
    for column in (1, 2):
        order = values[:, column].argsort()
        assert (bent[order, column].diff() >= 0).all()
    spread = [each[:, 1].quantile(0.9) - each[:, 1].quantile(0.1) for each in (plain, bent)]
    assert spread[0] < 0.5 and spread[1] > 2  # what a model sees of eight rows in ten


def test_auto_fits_training_rows_only_and_bends_what_comes_later() -> None:
    values = amounts()
    changed = values.clone()
    changed[1500:] = 1e12
    train = torch.arange(1500)
    first, second = Scaler.fit("auto", values, train), Scaler.fit("auto", changed, train)
    assert torch.equal(first.apply(values)[:1500], second.apply(changed)[:1500])
    assert second.apply(changed).isfinite().all() and second.apply(changed)[1500:, 1:].max() < 50


@pytest.mark.parametrize(("different", "bent"), [(49, False), (50, True)])
def test_a_column_of_few_different_values_is_not_bent_however_they_are_placed(different: int, bent: bool) -> None:
    """Its first rows have one value alone."""
    codes = torch.zeros(20_000, 1, dtype=torch.float64)
    codes[-different + 1 :, 0] = torch.arange(1.0, different)
    codes[-1] = 1e6
    assert (Scaler.of_all("auto", codes).bends is not None) is bent


def test_columns_that_are_bent_together_are_as_those_bent_alone() -> None:
    values = amounts()[:, 1:2] * torch.arange(1.0, 41)
    together, alone = Scaler.of_all("auto", values), Scaler.of_all("auto", values[:, 20:21])
    assert together.bends is not None and together.bends.columns.tolist() == list(range(40))
    assert torch.equal(together.apply(values)[:, 20:21], alone.apply(values[:, 20:21]))


@pytest.mark.parametrize("zeros", [0.52, 0.7, 0.7499, 0.752, 0.9])
def test_the_width_of_mostly_equal_amounts_is_that_of_the_others(zeros: float) -> None:
    paid = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64).mul(2).exp() * 1000
    paid[: int(10_000 * zeros)] = 0
    bends = Scaler.fit("auto", paid, torch.arange(10_000)).bends
    assert bends is not None and 700 < bends.width.item() < 1500


@pytest.mark.parametrize("values", [BYTES, TABLE, TABLE.float(), torch.arange(12.0).reshape(4, 3).t(), TABLE[:, :0]])
def test_rows_of_columns_are_those_of_all_scaled_values(values: Tensor) -> None:
    scaler = Scaler.fit("standard", values, TRAIN) if values.numel() else Scaler.none()
    columns, expected = Columns(values, scaler), scaler.apply(values)
    for rows in ([2, 0, 2], [1], []):
        index = torch.tensor(rows, dtype=torch.int64)
        assert torch.equal(columns[index], expected[index]) and columns[index].dtype == torch.float32


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_columns_lack_is_refused(row: int) -> None:
    with pytest.raises(IndexError):
        Columns(TABLE, Scaler.none())[torch.tensor([0, row])]
