"""Codes without gaps, against text of zeros and ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.messaging.quantise import GROUP, join, split


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
