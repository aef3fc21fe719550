"""The field against Python's integers and galois: every operation, every split of the inner dimension."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation import field as module
from colonnade.common.aggregation.field import Field
from colonnade.common.aggregation.integers import is_prime
from colonnade.common.errors import InputError

MERSENNE, NEAR_26 = 2**31 - 1, 2**26 - 5
PRIMES = (3, 5, 257, 65537, NEAR_26, 2**30 - 35, MERSENNE)
DIMENSIONS = st.integers(0, 9)


def elements(p: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(p, shape, generator=torch.Generator().manual_seed(seed))


def exact(left: Tensor, right: Tensor, p: int) -> Tensor:
    """The product by Python's integers."""
    product = np.matmul(left.numpy().astype(object), right.numpy().astype(object)) % p
    return torch.from_numpy(product.astype(np.int64))


@given(st.sampled_from(PRIMES), DIMENSIONS, st.integers(0, 600), DIMENSIONS, st.booleans(), st.integers(0, 99))
def test_products_are_those_of_whole_numbers(p: int, m: int, k: int, n: int, most: bool, seed: int) -> None:
    left, right = (
        (torch.full((m, k), p - 1), torch.full((k, n), p - 1))
        if most
        else (elements(p, m, k, seed=seed), elements(p, k, n, seed=seed + 1))
    )
    want = exact(left, right, p) if k else torch.zeros(m, n, dtype=torch.int64)
    assert torch.equal(Field(p).matmul(left, right), want)


@pytest.mark.parametrize("p", [NEAR_26, MERSENNE])
@pytest.mark.parametrize("value", ["p - 1", "p // 2", "p // 2 + 1", "split worst"])
def test_the_largest_sums_are_exact_in_long_products(p: int, value: str) -> None:
    base = np.sqrt(2 * p)
    worst = {"p - 1": p - 1, "p // 2": p // 2, "p // 2 + 1": p // 2 + 1, "split worst": int(base * (base // 2)) - 1}
    left, right = torch.full((2, 50_000), p - 1), torch.full((50_000, 3), worst[value])
    want = torch.full((2, 3), (p - 1) * worst[value] * 50_000 % p)
    assert torch.equal(Field(p).matmul(left, right), want)


@pytest.mark.parametrize("p", [NEAR_26, MERSENNE])
@pytest.mark.parametrize(("m", "k", "n"), [(300, 784, 64), (28, 7, 3000), (3000, 7, 28), (1, 300, 1), (65, 28, 64)])
def test_products_of_shapes_as_they_come(p: int, m: int, k: int, n: int) -> None:
    left, right = elements(p, m, k), elements(p, k, n, seed=1)
    product = Field(p).matmul(left, right)
    assert torch.equal(product[:3], exact(left[:3], right, p)) and product.is_contiguous()
    turned = Field(p).matmul(right.mT, left.mT)
    assert torch.equal(turned, product.mT)
    assert torch.equal(Field(p).matmul(left[:, ::2], right[::2]), exact(left[:, ::2], right[::2], p))


@pytest.mark.parametrize("block", [1, 100, 2**24])
def test_blocks_of_any_size_give_the_same(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = elements(MERSENNE, 31, 300), elements(MERSENNE, 300, 5, seed=1)
    monkeypatch.setattr(module, "CACHED", {})  # as on a device that has none
    monkeypatch.setattr(module, "BLOCK", block)
    assert torch.equal(Field(MERSENNE).matmul(left, right), exact(left, right, MERSENNE))


def test_leading_dimensions_broadcast() -> None:
    field, left, right = Field(MERSENNE), elements(MERSENNE, 3, 1, 4, 5), elements(MERSENNE, 2, 5, 6, seed=1)
    want = exact(left, right, MERSENNE)
    assert torch.equal(field.matmul(left, right), want) and want.shape == (3, 2, 4, 6)
    assert field.matmul(left[:0], right).shape == (0, 2, 4, 6)


def test_every_operation_is_that_of_galois() -> None:
    import galois  # takes a second

    field, x, y = Field(MERSENNE), elements(MERSENNE, 9, 40), elements(MERSENNE, 40, seed=1)
    GF = galois.GF(MERSENNE, compile="python-calculate")
    one, other = GF(x.numpy()), GF(y.numpy())
    assert field.add(x, y).tolist() == np.asarray(one + other).tolist()
    assert field.matmul(x, y[:, None]).tolist() == np.asarray(one @ other[:, None]).tolist()


def test_extreme_elements() -> None:
    for p in PRIMES:
        field, ends = Field(p), torch.tensor([0, 1, p // 2, p // 2 + 1, p - 1])
        pairs = [(x, y) for x in ends.tolist() for y in ends.tolist()]
        assert field.add(ends[:, None], ends).flatten().tolist() == [(x + y) % p for x, y in pairs]
        assert field.matmul(ends[:, None], ends[None]).flatten().tolist() == [x * y % p for x, y in pairs]


def test_primes_are_those_of_galois() -> None:
    import galois

    assert [n for n in range(-3, 3000) if is_prime(n)] == galois.primes(3000)
    near = [*range(2**31 - 300, 2**31 + 300), *range(NEAR_26 - 99, NEAR_26 + 99)]
    assert [n for n in near if is_prime(n)] == [n for n in near if galois.is_prime(n)]
    assert not any(map(is_prime, (2047, 1_373_653, 25_326_001)))  # composites that fool the first witnesses


@pytest.mark.parametrize(
    ("p", "hint"), [(2**26, NEAR_26), (2**32 - 5, MERSENNE), (2, MERSENNE), (-7, MERSENNE), (9, 7)]
)
def test_another_modulus_is_refused_with_one_that_will_do(p: int, hint: int) -> None:
    with pytest.raises(InputError, match=str(p)) as caught:
        Field(p)
    assert caught.value.hint == f"take {hint}"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.ones(2, 3), torch.ones(3, 2, dtype=torch.int64)),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.float64)),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64)),
        (torch.ones(3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)),
        (torch.ones(2, 2, 3, dtype=torch.int64), torch.ones(3, 3, 2, dtype=torch.int64)),
    ],
)
def test_operands_that_do_not_fit_are_refused(left: Tensor, right: Tensor) -> None:
    with pytest.raises(InputError, match="modular product"):
        Field(5).matmul(left, right)


def test_sums_that_are_multiples_of_p_are_zero() -> None:
    import galois

    unlucky = [p for p in (*galois.primes(5000)[1:], *galois.primes(66_000)[-50:]) if p * (1 / p) < 1]
    assert len(unlucky) > 10  # of these a quotient in float64 falls short
    for p in unlucky:
        left, right = elements(p, 300, 1), torch.tensor([[p // 3], [1]])
        left = torch.cat([left, -left * (p // 3) % p], dim=1)
        assert not Field(p).matmul(left, right).any()
