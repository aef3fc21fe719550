"""Lagrange coding: any R responses give exact sums; the views of few members are counted case by case."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation import lagrange
from colonnade.common.aggregation.field import Field
from colonnade.common.aggregation.fixed_point import from_field, to_field
from colonnade.common.aggregation.integers import lagrange_matrix
from colonnade.common.aggregation.lagrange import LagrangeCode, agreed_code
from colonnade.common.errors import InputError

MERSENNE, NEAR_26 = Field(2**31 - 1), Field(2**26 - 5)
TINY = LagrangeCode(Field(7), 1, (1, 2), (3, 4, 5))  # K = T = 1, R = N = 3
CODES = [  # small enough to count every case
    LagrangeCode(Field(5), 1, (0, 1), (2, 3, 4)),
    TINY,
    agreed_code(Field(11), 2, 1, 5),
    agreed_code(Field(11), 1, 2, 6),
]


def elements(field: Field, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(field.p, shape, generator=torch.Generator().manual_seed(seed))


def every(field: Field, count: int) -> Tensor:
    """All tuples of so many elements, (count, p^count)."""
    return torch.cartesian_prod(*[torch.arange(field.p)] * count).reshape(-1, count).mT


def round_of(code: LagrangeCode, parties: int, seed: int) -> tuple[Tensor, Tensor]:
    """Responses of all members, and the sums in plain integers (K, 2, 3)."""
    rng = torch.Generator().manual_seed(seed)
    answers, sums = torch.zeros(code.shares, 2, 3, dtype=torch.int64), 0
    for n in range(parties):
        x = torch.randint(-50, 51, (code.segments, 2, 4), generator=rng)
        w = torch.randint(-50, 51, (4, 3), generator=rng)
        data = code.encode(to_field(code.field, x, "x", 0), elements(code.field, code.masks, 2, 4, seed=seed + n))
        model = code.encode_same(
            to_field(code.field, w, "w", 0), elements(code.field, code.masks, 4, 3, seed=-seed - n)
        )
        answers = code.field.add(answers, code.field.matmul(data, model))
        sums = sums + x @ w
    return answers, torch.as_tensor(sums)


@given(st.sampled_from([MERSENNE, NEAR_26]), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.data())
def test_any_sufficient_responses_give_the_plain_sums(
    field: Field, segments: int, masks: int, spare: int, data: st.DataObject
) -> None:
    code = agreed_code(field, segments, masks, 2 * (segments + masks - 1) + 1 + spare)
    answers, sums = round_of(code, parties=3, seed=data.draw(st.integers(1, 99)))
    order = data.draw(st.permutations(range(code.shares)))
    for size in range(code.threshold, code.shares + 1):
        senders = order[:size]
        assert torch.equal(from_field(field, code.decode(senders, answers[senders])), sums)
        assert code.strays(senders, answers[senders]) == []


def test_every_subset_decodes() -> None:
    code = agreed_code(MERSENNE, 2, 1, 7)
    answers, sums = round_of(code, parties=2, seed=5)
    subsets = [s for size in (5, 6, 7) for s in itertools.combinations(range(7), size)]
    assert len(subsets) == 29
    for senders in subsets:
        assert torch.equal(from_field(MERSENNE, code.decode(senders, answers[list(senders)])), sums)


def test_shares_lie_on_the_polynomial_that_galois_interpolates() -> None:
    import galois  # takes a second

    field = Field(257)
    code = LagrangeCode(field, 3, (5, 200, 17, 90, 31), (1, 2, 3, 50, 60, 70, 80, 256, 0))
    segments, masks = elements(field, 3, 4), elements(field, 2, 4, seed=1)
    shares = code.encode(segments, masks)
    GF = galois.GF(257, compile="python-calculate")  # its compiler takes longer than all tests here
    for column in range(4):
        values = GF([*segments[:, column].tolist(), *masks[:, column].tolist()])
        polynomial = galois.lagrange_poly(GF(code.betas), values)
        assert np.asarray(polynomial(GF(code.alphas))).tolist() == shares[:, column].tolist()


def test_a_model_is_encoded_as_if_it_were_every_segment() -> None:
    code = agreed_code(MERSENNE, 4, 2, 12)
    model, masks = elements(MERSENNE, 5, 3), elements(MERSENNE, 2, 5, 3, seed=1)
    assert torch.equal(code.encode_same(model, masks), code.encode(model.expand(4, 5, 3), masks))


def test_segments_come_back_from_shares_alone() -> None:
    code = agreed_code(MERSENNE, 3, 2, 9)
    segments, masks = elements(MERSENNE, 3, 6), elements(MERSENNE, 2, 6, seed=1)
    shares = code.encode(segments, masks)
    back = torch.tensor(lagrange_matrix(code.alphas[:5], code.betas, MERSENNE.p))
    assert torch.equal(MERSENNE.matmul(back, shares[:5]), torch.cat([segments, masks]))


@pytest.mark.parametrize("code", CODES)
def test_any_t_shares_are_uniform_for_any_data_and_one_more_is_not(code: LagrangeCode) -> None:
    masks = every(code.field, code.masks)
    for few in (code.masks, code.masks + 1):
        for seen in itertools.combinations(range(code.shares), few):
            counts = {
                tuple(_counts(code.encode(data[:, None].expand(-1, masks.shape[1]), masks)[list(seen)], code.field.p))
                for data in every(code.field, code.segments).mT
            }
            assert (counts == {(1,) * code.field.p**few}) == (few == code.masks)
            assert (len(counts) == 1) == (few == code.masks)


def _counts(view: Tensor, p: int) -> list[int]:
    """Number of times that each tuple is seen, (p^seen)."""
    number = torch.zeros_like(view[0])
    for seen in view:
        number = number * p + seen
    return torch.bincount(number, minlength=p ** len(view)).tolist()


Inputs = list[tuple[tuple[int, ...], int]]
"""Of every party: a column of x, a row an entry, and its one weight w."""


def _views(inputs: Inputs, *, masked: bool) -> list[int]:
    """Number of times that the server sees each tuple of its R = 3 responses to every row, over all masks."""
    code, p, rows = TINY, TINY.field.p, len(inputs[0][0])
    randomness = every(code.field, len(inputs) * (rows + 1) + masked * rows * code.freedom)
    answers = torch.zeros(3, rows, randomness.shape[1], dtype=torch.int64)
    for x, w in inputs:
        of_data, of_model, randomness = randomness.tensor_split([rows, rows + 1])
        data = code.encode(torch.tensor(x)[None, :, None].expand(1, *of_data.shape), of_data[None])
        answers += data * code.encode_same(torch.full_like(of_model, w), of_model[None])
    if masked:
        answers += code.vanishing(randomness.unflatten(0, (code.freedom, rows)))
    sums = sum(torch.tensor(x) * w for x, w in inputs)
    assert bool((code.decode([0, 1, 2], answers % p)[0] == (sums % p)[:, None]).all())
    return _counts((answers % p).flatten(0, 1), p)


UNEQUAL: list[tuple[Inputs, Inputs]] = [
    ([((0,), 0)], [((0,), 3)]),
    ([((0,), 0), ((0,), 0)], [((1,), 1), ((1,), 6)]),
    ([((1, 1), 0)], [((1, 2), 0)]),
]


@pytest.mark.parametrize(("one", "other"), UNEQUAL)
def test_responses_that_decode_a_sum_show_more_than_the_sum(one: Inputs, other: Inputs) -> None:
    assert _views(one, masked=False) != _views(other, masked=False)


def test_most_inputs_with_equal_sums_look_alike() -> None:
    views = [_views(inputs, masked=False) for inputs in ([((2,), 3), ((0,), 0)], [((1,), 1), ((1,), 5)])]
    assert views[0] == views[1]


def test_zeros_give_themselves_away_six_times_of_seven() -> None:
    zeros, half = (np.array(_views(inputs, masked=False)) for inputs in UNEQUAL[0])
    assert half.sum() == 49 and half[zeros == 0].sum() == 42  # views impossible for x = w = 0


def test_under_a_model_of_zeros_equal_rows_show() -> None:
    equal, other = (np.array(_views(inputs, masked=False)) for inputs in UNEQUAL[2])
    assert other[equal == 0].sum() > 0.8 * other.sum()


@pytest.mark.parametrize(("one", "other"), UNEQUAL)
def test_vanishing_masks_leave_the_sum_alone(one: Inputs, other: Inputs) -> None:
    views = _views(one, masked=True)
    assert views == _views(other, masked=True)
    possible = 49 ** len(one[0][0])  # polynomials with those sums: each as often as any other
    assert set(views) == {0, sum(views) // possible} and sum(map(bool, views)) == possible


@pytest.mark.parametrize("code", [*CODES, agreed_code(MERSENNE, 3, 2, 11)])
def test_vanishing_masks_are_zero_at_data_points_and_of_the_responses_degree(code: LagrangeCode) -> None:
    shares = code.vanishing(elements(code.field, code.freedom, 6, seed=2))
    everyone = range(code.shares)
    assert bool(shares.any()) and not code.decode(everyone, shares).any()
    assert code.strays(everyone, shares) == []
    assert code.freedom == code.segments + 2 * code.masks - 1


def test_a_response_at_another_point_is_named() -> None:
    code = agreed_code(MERSENNE, 2, 1, 8)
    answers, _ = round_of(code, parties=2, seed=3)
    senders = [7, 0, 3, 2, 6, 1, 4, 5]
    wrong = answers[senders].clone()
    wrong[6, 1, 2] = (wrong[6, 1, 2] + 1) % MERSENNE.p
    assert code.strays(senders, wrong) == [4]
    wrong = answers[senders].clone()
    wrong[2, 0, 0] = (wrong[2, 0, 0] + 1) % MERSENNE.p
    assert code.strays(senders, wrong) == [1, 4, 5]
    assert code.strays(senders[:5], wrong[:5]) == []  # nothing to hold them against


def test_a_decoding_matrix_is_made_once_a_set_of_senders() -> None:
    code = agreed_code(NEAR_26, 2, 1, 6)
    answers, _ = round_of(code, parties=1, seed=1)
    lagrange.decoding_of.cache_clear()
    for senders in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [5, 1, 2, 3, 4], [0, 1, 2, 3, 4]):
        code.decode(senders, answers[senders])
    assert lagrange.decoding_of.cache_info().misses == 2
    assert lagrange.decoding_of.cache_info().maxsize is not None


@pytest.mark.parametrize(
    ("field", "segments", "betas", "alphas", "match"),
    [
        (MERSENNE, 2, (1, 2, 3), (4, 5, 6, 7), "4 parties cannot decode K = 2, T = 1: at least 5"),
        (MERSENNE, 1, (1, 1), (3, 4, 5), "not distinct"),
        (MERSENNE, 1, (1, 2), (3, 3, 5), "not distinct"),
        (MERSENNE, 1, (1, 2), (2, 3, 4), "not distinct"),
        (Field(5), 1, (1, 2), (3, 4, 5), "not distinct elements of F_5"),
        (Field(5), 1, (-1, 2), (3, 4, 0), "not distinct elements of F_5"),
        (MERSENNE, 0, (1, 2), (3, 4, 5), "0 segments and 2 masks"),
        (MERSENNE, 1, (1,), (3, 4, 5), "1 segments and 0 masks"),
    ],
)
def test_invalid_codes_are_refused(
    field: Field, segments: int, betas: tuple[int, ...], alphas: tuple[int, ...], match: str
) -> None:
    with pytest.raises(InputError, match=match) as caught:
        LagrangeCode(field, segments, betas, alphas)
    assert caught.value.hint


def test_inputs_that_do_not_fit_a_code_are_refused() -> None:
    code = agreed_code(MERSENNE, 2, 1, 5)
    ones = torch.ones(5, 3, dtype=torch.int64)
    for wrong, match in [
        (lambda: agreed_code(Field(7), 2, 1, 5), "8 points .* F_7"),
        (lambda: code.encode(ones[:3], ones[:1]), r"segments .* shape \(3, 3\), expected \(2, 3\)"),
        (lambda: code.encode(ones[:2], ones[:2]), r"masks .* shape \(2, 3\), expected \(1, 3\)"),
        (lambda: code.encode_same(ones, ones[:1]), r"masks .* shape \(1, 3\), expected \(1, 5, 3\)"),
        (lambda: code.vanishing(ones[:2]), r"coefficients .* shape \(2, 3\), expected \(3, 3\)"),
        (lambda: code.decode([0, 1, 2, 3], ones[:4]), "4 responses of 4 senders: .* R = 5"),
        (lambda: code.decode([0, 1, 2, 3], ones), "5 responses of 4 senders"),
        (lambda: code.decode([0, 1, 2, 3, 3], ones), "repeat"),
        (lambda: code.strays([0, 1, 2, 3, 5], ones), r"not of 0 \.\. 4"),
    ]:
        with pytest.raises(InputError, match=match):
            wrong()


def rank(matrix: Tensor, p: int) -> int:
    """Of a matrix over the field of p elements."""
    rows, found = [[int(value) % p for value in row] for row in matrix], 0
    for column in range(matrix.shape[1]):
        pivot = next((at for at in range(found, len(rows)) if rows[at][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        inverse = pow(rows[found][column], -1, p)
        for at in range(found + 1, len(rows)):
            factor = rows[at][column] * inverse
            rows[at] = [(ours - factor * theirs) % p for ours, theirs in zip(rows[at], rows[found], strict=True)]
        found += 1
    return found


@pytest.mark.parametrize("code", [*CODES, agreed_code(Field(31), 3, 1, 9)], ids=str)
def test_answers_over_a_second_set_are_uniform_up_to_r_minus_k_of_them(code: LagrangeCode) -> None:
    """Their masks are those of a polynomial that is uniform whatever the first set's are: docs/protocols/fedvs.md."""
    masks = code.vanishing(torch.eye(code.freedom, dtype=torch.int64))  # (N, R - K)
    assert code.freedom == code.threshold - code.segments
    for count in range(1, code.shares + 1):
        ranks = {
            rank(masks[list(points)], code.field.p) for points in itertools.combinations(range(code.shares), count)
        }
        assert ranks == {min(count, code.freedom)}
