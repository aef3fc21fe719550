"""Few bytes a tensor: exact at both ends, right on average, never further off than a step, and packed tight.

The oracle (`Plain`) has no blocks and no lanes: it reads bits from text and computes with fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.messaging import quantise as scale_module
from colonnade.common.messaging.forms import HALF, Coded, Form, Largest, Packed, Signs
from colonnade.common.messaging.quantise import GROUP, join, pack, split, unpack

NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, max_side=7)
TENSORS = arrays.arrays(np.float32, SHAPES, elements=NUMBERS).map(lambda values: torch.from_numpy(np.array(values)))
FEW = range(1, 9)
CODED = st.builds(Coded, st.sampled_from(FEW), st.booleans(), st.booleans())


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rounding(low: Tensor, high: Tensor) -> Tensor:
    """Error that single precision may add: seven roundings and the longer step on the range, one on the result."""
    return 2.0**-20 * (high - low) + 2.0**-23 * torch.maximum(low.abs(), high.abs())


def columns_of(tensor: Tensor, form: Coded) -> Tensor:
    """Entries as rows by scales, float64."""
    by_column = form.by_column and tensor.dim() > 1
    return tensor.double().reshape(-1, tensor.shape[-1] if by_column else 1)


def codes_of(packed: Packed, bits: int, count: int) -> list[int]:
    """Codes read bit by bit; the remaining bits are zeros."""
    text = "".join(f"{byte:08b}" for byte in packed.data.tolist())
    assert len(text) == -(-count * bits // 8) * 8
    assert set(text[count * bits :]) <= {"0"}
    return [int(text[place * bits : (place + 1) * bits], 2) for place in range(count)]


def levels_of(packed: Packed, bits: int, shape: tuple[int, ...]) -> Tensor:
    """The values of the codes, from fractions."""
    ends = [[Fraction(float(end)) for end in row] for row in packed.numbers]
    lows, highs = ends if len(ends) == 2 else ([-end for end in ends[0]], ends[0])
    codes = codes_of(packed, bits, math.prod(shape))
    at = [place % len(lows) for place in range(len(codes))]
    values = [lows[k] + code * (highs[k] - lows[k]) / (2**bits - 1) for code, k in zip(codes, at, strict=True)]
    return torch.tensor([float(value) for value in values], dtype=torch.float64).reshape(shape)


@given(TENSORS, CODED, st.integers(0, 9))
def test_ends_are_exact_and_nothing_moves_by_more_than_a_step_or_half_of_one(
    tensor: Tensor, form: Coded, seed: int
) -> None:
    back = unpack(pack(tensor, form, draws(seed)))
    assert back.shape == tensor.shape and back.dtype == torch.float32
    was, now = columns_of(tensor, form), columns_of(back, form)
    low, high = was.amin(0), was.amax(0)
    assert torch.equal(now[was == low], was[was == low])
    assert torch.equal(now[was == high], was[was == high])
    step = (high - low) / (2**form.bits - 1)
    assert ((now - was).abs() <= step * (0.5 if form.nearest else 1 + 2.0**-16) + rounding(low, high)).all()


@given(TENSORS, CODED, st.integers(0, 9))
def test_unpacked_values_are_those_of_the_codes(tensor: Tensor, form: Coded, seed: int) -> None:
    packed = pack(tensor, form, draws(seed))
    shape = tuple(tensor.shape)
    back, levels = columns_of(unpack(packed), form), columns_of(levels_of(packed, form.bits, shape), form)
    assert ((back - levels).abs() <= rounding(levels.amin(0), levels.amax(0))).all()
    assert packed.nbytes == form.size(shape)


@pytest.mark.parametrize("form", [Coded(3), Coded(4, by_column=True), Coded(8), Coded(1, nearest=True)], ids=str)
@pytest.mark.parametrize("columns", [1, 3, 4096])
def test_blocks_make_no_difference(form: Coded, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, the last neither full nor a whole group."""
    monkeypatch.setattr(scale_module, "BLOCK", 1 << 14)
    tensor = torch.randn(100_001 // columns, columns, generator=draws(1)) + torch.arange(columns)
    back = unpack(pack(tensor, form, draws(2)))
    was, now = columns_of(tensor, form), columns_of(back, form)
    assert torch.equal(now.amin(0), was.amin(0)) and torch.equal(now.amax(0), was.amax(0))
    step = (was.amax(0) - was.amin(0)) / (2**form.bits - 1)
    assert ((now - was).abs() <= step * (0.5 if form.nearest else 1) + 1e-5 * columns).all()


@pytest.mark.parametrize("bits", [1, 3, 4, 8])
@pytest.mark.parametrize("rows", [400, 40_000], ids=["drawn at once", "from a stream"])
def test_on_average_nothing_moves(bits: int, rows: int) -> None:
    tensor = torch.tensor([0.0, 0.11, 0.5, 0.73, 1.0]).repeat(rows, 1)
    back = unpack(pack(tensor, Coded(bits), draws(3))).double()
    step = 1 / (2**bits - 1)
    assert ((back.mean(0) - tensor[0].double()).abs() < 5 * step / 2 / math.sqrt(rows) + step * 2**-16 + 1e-6).all()


def test_of_all_that_can_be_drawn_as_much_rounds_up_as_lies_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every u once, instead of drawing: the bias is below 2^-16 of a step."""
    odd = np.arange(1, 1 << 16, 2, dtype=np.uint16)
    count = len(odd)
    monkeypatch.setattr(scale_module, "odd_words", lambda _draws, size: iter([np.resize(odd, size)]))
    for fraction in (0.0, 0.001, 0.25, 1 / 3, 0.5, 0.9999, 1.0):
        tensor = torch.full((count + 2,), fraction)
        tensor[-2:] = torch.tensor([0.0, 1.0])
        back = unpack(pack(tensor, Coded(1), draws()))[:-2].double()
        assert abs(float(back.mean()) - float(tensor[0])) < 2.0**-16


@pytest.mark.parametrize("u", [1, 65_535])
@pytest.mark.parametrize("bits", FEW)
def test_both_ends_of_a_scale_are_restored_for_any_draw(u: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.full(64, u, np.uint16)
    monkeypatch.setattr(scale_module, "odd_words", lambda _draws, size: iter([words[:size]]))
    for seed in range(300):
        tensor = torch.randn(4, generator=draws(seed))
        back = unpack(pack(tensor, Coded(bits), draws()))
        assert back.max() == tensor.max() and back.min() == tensor.min()


@pytest.mark.parametrize("ends", [(-3e38, 3e38), (0.0, 1e-45), (-1e-40, 1e-40), (1.0, 1.0000001), (-3e38, -2.9e38)])
@pytest.mark.parametrize("nearest", [False, True])
def test_ranges_that_single_precision_has_no_number_for(ends: tuple[float, float], nearest: bool) -> None:
    low, high = ends
    tensor = torch.linspace(0, 1, 100, dtype=torch.float64).mul(high - low).add(low).float()
    tensor[0], tensor[-1] = low, high
    back = unpack(pack(tensor, Coded(4, nearest), draws()))
    assert back[0] == tensor[0] and back[-1] == tensor[-1]
    slack = rounding(*tensor.double().aminmax()).clamp(min=1e-45)
    assert ((back.double() - tensor.double()).abs() <= (high - low) / 15 + slack).all()


@given(TENSORS.map(lambda tensor: tensor.clamp(-60_000, 60_000)))
def test_half_precision_is_torchs(tensor: Tensor) -> None:
    packed = pack(tensor, Coded(HALF), draws())
    assert torch.equal(unpack(packed), tensor.half().float())
    assert packed.nbytes == 2 * tensor.numel() == packed.form.size(tuple(tensor.shape))


@given(TENSORS, st.sampled_from([0.01, 0.07, 0.1, 0.5, 0.99]))
def test_the_largest_come_back_as_they_are_and_the_others_as_zeros(tensor: Tensor, share: float) -> None:
    packed = pack(tensor, Largest(share), draws())
    values, back = tensor.reshape(-1).tolist(), unpack(packed)
    count = math.ceil(Fraction(str(share)) * len(values))
    assert back.shape == tensor.shape
    places = packed.places.tolist()
    assert len(places) == count and places == sorted(set(places))
    kept = [value if place in places else 0.0 for place, value in enumerate(values)]
    assert back.reshape(-1).tolist() == kept
    sizes = sorted((abs(value) for value in values), reverse=True)
    assert sorted((abs(values[place]) for place in places), reverse=True) == sizes[:count]
    width = 1 if len(values) <= 256 else 2
    assert packed.nbytes == packed.form.size(tuple(tensor.shape)) == (4 + width) * count


@pytest.mark.parametrize(("entries", "width"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_places_take_as_few_bytes_as_they_need(entries: int, width: int) -> None:
    tensor = torch.zeros(entries)
    tensor[-1] = -2.0
    packed = pack(tensor, Largest(0.000001), draws())
    assert packed.places.tolist() == [entries - 1] and packed.nbytes == width + 4
    assert torch.equal(unpack(packed), tensor)


@pytest.mark.parametrize(
    ("share", "entries", "count"), [(0.1, 3, 1), (0.1, 30, 3), (0.07, 100, 7), (0.9, 1, 1), (0.5, 0, 0)]
)
def test_a_share_is_as_it_is_written(share: float, entries: int, count: int) -> None:
    assert Largest(share).count((entries,)) == count


@given(TENSORS)
def test_signs_come_back_with_the_mean_magnitude(tensor: Tensor) -> None:
    packed = pack(tensor, Signs(), draws())
    mean = tensor.double().abs().mean().float() if tensor.numel() else torch.tensor(0.0)
    back = unpack(packed)
    assert torch.allclose(back, torch.where(tensor >= 0, mean, -mean), rtol=1e-6)
    assert packed.nbytes == -(-tensor.numel() // 8) + 4 == packed.form.size(tuple(tensor.shape))


FORMS: tuple[Form, ...] = (
    *map(Coded, FEW),
    Coded(4, symmetric=True),
    Coded(4, by_column=True),
    Coded(2, nearest=True),
    Largest(0.3),
    Signs(),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("count", [100, 20_000])
def test_the_same_draws_give_the_same_bits(form: Form, count: int) -> None:
    tensor = torch.randn(count // 4, 4, generator=draws(1))
    one, two, other = (pack(tensor, form, draws(seed)).data for seed in (5, 5, 6))
    drawn = isinstance(form, Coded) and not form.nearest
    assert (one == two).all() and bool((one != other).any()) is drawn


@pytest.mark.parametrize(
    "form", [Coded(2), Coded(2, by_column=True), Coded(2, symmetric=True), Coded(5, nearest=True), Signs()], ids=str
)
@pytest.mark.parametrize("value", [3.3, -0.1, 0.0, 3.4e38, 1e-45])
def test_equal_entries_come_back_exactly(form: Form, value: float) -> None:
    tensor = torch.full((5, 3), value)
    assert torch.equal(unpack(pack(tensor, form, draws())), tensor)


@pytest.mark.parametrize("form", [*FORMS, Coded(HALF)], ids=str)
@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_no_entries(form: Form, shape: tuple[int, ...]) -> None:
    packed = pack(torch.empty(shape), form, draws())
    assert unpack(packed).shape == shape and packed.nbytes == form.size(shape)


@pytest.mark.parametrize("form", [*FORMS, Coded(HALF)], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(form: Form, value: float) -> None:
    with pytest.raises(InputError, match="not finite"):
        pack(torch.tensor([[1.0, 2.0], [3.0, value]]), form, draws())


def test_values_too_large_for_half_precision_are_refused() -> None:
    with pytest.raises(InputError, match="not finite in half precision"):
        pack(torch.tensor([1.0, 70_000.0]), Coded(HALF), draws())


@given(TENSORS, st.sampled_from(FORMS))
def test_layout_in_memory_makes_no_difference(tensor: Tensor, form: Form) -> None:
    turned = tensor.permute(tuple(reversed(range(tensor.dim()))))
    one, two = (pack(each, form, draws()) for each in (turned, turned.contiguous()))
    assert (one.data == two.data).all() and (one.numbers == two.numbers).all() and (one.places == two.places).all()


@given(TENSORS, st.sampled_from(FEW), st.booleans(), st.integers(0, 9))
def test_about_zero_the_largest_magnitude_is_exact_and_nothing_moves_by_more_than_a_step(
    tensor: Tensor, bits: int, nearest: bool, seed: int
) -> None:
    form = Coded(bits, nearest, symmetric=True)
    packed = pack(tensor, form, draws(seed))
    assert packed.numbers.shape == (1, 1) and packed.nbytes == form.size(tuple(tensor.shape))
    came = unpack(packed)
    largest = tensor.abs().max()
    assert torch.equal(came[tensor.abs() == largest], tensor[tensor.abs() == largest])
    step, slack = 2 * largest.double() / (2**bits - 1), rounding(-largest.double(), largest.double())
    moved = (came.double() - tensor.double()).abs().max()
    assert moved <= step * (0.5 if nearest else 1 + 2.0**-16) + slack
    assert ((came.double() - levels_of(packed, bits, tuple(tensor.shape))).abs() <= slack).all()


@given(st.integers(1, 8), st.integers(0, 80 // GROUP), st.data())
def test_bytes_hold_the_codes_one_after_the_other_and_give_them_back(
    bits: int, groups: int, data: st.DataObject
) -> None:
    count = groups * GROUP
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count))
    array = np.array(codes, np.uint8)
    joined = join(array, bits)
    assert "".join(f"{byte:08b}" for byte in joined.tolist()) == "".join(f"{code:0{bits}b}" for code in codes)
    assert split(joined, bits).tolist() == codes


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", [1, 5, 9, 37])
def test_truncated_input_gives_the_codes_present(bits: int, count: int) -> None:
    codes = (np.arange(40) % 2**bits).astype(np.uint8)
    data = join(codes, bits)[: -(-count * bits // 8)]
    assert split(data, bits)[:count].tolist() == codes[:count].tolist()
