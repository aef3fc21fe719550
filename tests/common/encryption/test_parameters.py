"""Security by the published table, noise and range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.encryption.parameters import DEGREE, FLOOD, LEAST_SIGMA, SIGMA, WORD, SumSize, security
from colonnade.common.errors import InputError

# Homomorphic Encryption Standard (2018), Table 1, ternary secrets: N, then the largest log q for 128, 192 and 256 bits.
TABLE = """
1024   27   19   14
2048   54   37   29
4096  109   75   58
8192  218  152  118
16384 438  305  237
"""


def test_the_parameters_have_192_bits_by_the_published_table() -> None:
    for line in TABLE.split("\n")[1:-1]:
        degree, *most = map(int, line.split())
        for bits, word in zip((128, 192, 256), most, strict=True):
            assert security(degree, word) == bits
            assert security(degree, word + 1) < bits
    assert security(DEGREE, WORD, SIGMA) == 192
    assert security(DEGREE, WORD, LEAST_SIGMA / 1.01) == 0 and security(3000, 20) == 0


@given(st.integers(1, 3_000_000), st.integers(1, 15))
def test_an_error_is_below_half_a_step_and_no_sum_of_precise_numbers_leaves_the_range(rows: int, weight: int) -> None:
    try:
        size = SumSize(rows, weight)
    except InputError:
        return
    assert size.flood >= FLOOD * size.hidden
    assert 2 * size.largest_error <= size.step and size.step & (size.step - 1) == 0
    assert rows * weight * (2**size.precision - 1) <= size.largest_sum
    assert (size.largest_sum + 1) * size.step == 2**63


def test_what_does_not_fit_is_refused_before_a_run_with_the_largest_precision() -> None:
    size = SumSize(48_842)
    assert size.precision == 14
    size.refuse_large(14)
    with pytest.raises(InputError, match="sums over 48842 rows of numbers of 15 bits") as refused:
        size.refuse_large(15)
    assert refused.value.hint == "take at most 14 bits"
    with pytest.raises(InputError, match="leave no bit for a number"):
        SumSize(10**9, 15)
    for rows, weight in ((0, 1), (1, 0)):
        with pytest.raises(InputError):
            SumSize(rows, weight)


def test_hints_take_next_to_nothing_from_the_partys_secrets() -> None:
    size = SumSize(48_842)
    assert SIGMA / 2**0.5 > size.residual(10**4) > size.residual(10**8) > LEAST_SIGMA
    assert size.residual(size.most_answers) >= LEAST_SIGMA > size.residual(size.most_answers + 1000)
    assert min(SumSize(rows).most_answers for rows in (1, 10**6)) > 2**30
    assert size.disclosed(761, 3200) < 1e-4 and size.disclosed(761, 6400) == 2 * size.disclosed(761, 3200)
