"""Few bits an entry: exact at both ends, right on average, never further off than a step, and packed tight."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InputError
from common.numerics.quantise import HALF, pack, packed_size, unpack

NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
TENSORS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, max_side=7), elements=NUMBERS)
FEW = range(1, 9)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(TENSORS, st.sampled_from(FEW), st.integers(0, 9))
def test_ends_are_exact_and_nothing_moves_by_more_than_a_step(values: np.ndarray, bits: int, seed: int) -> None:
    tensor = torch.from_numpy(np.array(values))
    packed = pack(tensor, bits, draws(seed))
    back = unpack(packed)
    assert back.shape == tensor.shape and back.dtype == torch.float32
    assert packed.data.nbytes == packed_size(tuple(tensor.shape), bits) == math.ceil(tensor.numel() * bits / 8)
    low, high = tensor.min(), tensor.max()
    assert torch.equal(back[tensor == low], tensor[tensor == low])
    assert torch.equal(back[tensor == high], tensor[tensor == high])
    step = (high.double() - low.double()) / (2**bits - 1)
    slack = 1e-6 * max(abs(low.item()), abs(high.item()))
    assert (back.double() - tensor.double()).abs().max() <= step + slack


@pytest.mark.parametrize("bits", FEW)
def test_codes_are_what_an_unpacker_bit_by_bit_reads(bits: int) -> None:
    tensor = torch.rand(37, generator=draws(1))
    packed = pack(tensor, bits, draws(2))
    text = "".join(f"{byte:08b}" for byte in packed.data.tolist())
    codes = [int(text[place * bits : (place + 1) * bits], 2) for place in range(37)]
    levels = torch.tensor(codes) / (2**bits - 1) * (packed.high - packed.low) + packed.low
    assert torch.allclose(unpack(packed), levels, atol=1e-6)
    assert set(text[37 * bits :]) <= {"0"}


@pytest.mark.parametrize("bits", [1, 3, 4, 8])
def test_on_average_nothing_moves(bits: int) -> None:
    tensor = torch.tensor([0.0, 0.11, 0.5, 0.73, 1.0]).repeat(40_000, 1)
    back = unpack(pack(tensor, bits, draws(3))).double()
    step = 1 / (2**bits - 1)
    assert ((back.mean(0) - tensor[0].double()).abs() < 5 * step / 2 / math.sqrt(40_000) + 1e-7).all()


@given(TENSORS.filter(lambda a: bool((np.abs(a) < 60_000).all())))
def test_half_precision_is_torchs(values: np.ndarray) -> None:
    tensor = torch.from_numpy(np.array(values))
    packed = pack(tensor, HALF, draws())
    assert torch.equal(unpack(packed), tensor.half().float())
    assert packed.nbytes == 2 * tensor.numel()


def test_the_same_draws_give_the_same_bits() -> None:
    tensor = torch.randn(100)
    one, two, other = (pack(tensor, 4, draws(seed)).data for seed in (5, 5, 6))
    assert (one == two).all() and (one != other).any()


def test_equal_entries_and_no_entries() -> None:
    assert torch.equal(unpack(pack(torch.full((5,), 3.3), 2, draws())), torch.full((5,), 3.3))
    assert unpack(pack(torch.empty(0, 4), 2, draws())).shape == (0, 4)


@pytest.mark.parametrize(("value", "bits"), [(70_000.0, HALF), (math.nan, HALF), (math.nan, 8), (math.inf, 4)])
def test_what_cannot_be_scaled_is_refused(value: float, bits: int) -> None:
    with pytest.raises(InputError, match="not finite"):
        pack(torch.tensor([1.0, value]), bits, draws())


def test_the_largest_entry_comes_back_whatever_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, generator: torch.zeros(shape))
    for seed in range(300):
        tensor = torch.randn(4, generator=draws(seed))
        assert unpack(pack(tensor, 8, draws())).max() == tensor.max()
