"""Numbers formatted for readers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.text import plain


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (57774.0, "57,770"),
        (5.777e4, "57,770"),
        (1234567.0, "1,235,000"),
        (9999.6, "10,000"),
        (1000.0, "1,000"),
        (999.96, "1,000"),
        (100.0, "100"),
        (54.3, "54.3"),
        (-54.321, "-54.32"),
        (0.10821, "0.1082"),
        (0.0000123, "0.0000123"),
        (0.0, "0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1e-12, "1e-12"),
    ],
)
def test_a_number_has_four_digits_and_no_exponent(value: float, said: str) -> None:
    assert plain(value) == said


@given(st.floats(1e-9, 1e15), st.booleans())
def test_it_is_the_number_to_four_digits(size: float, negative: bool) -> None:
    value = -size if negative else size
    assert "e" not in plain(value)
    assert float(plain(value).replace(",", "")) == pytest.approx(value, rel=5.1e-4)
