"""Code books and inputs of encoders: fixed functions of a row, held against loops."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.privacy import DiscretePrivacyConfig, number_of_codes
from colonnade.common.privacy.codes import CountNoise
from colonnade.common.privacy.encoders import CodeBook, encoder_inputs, oriented_gradients
from colonnade.server.training.fusion.codes import Grouping, kept_codes


@given(st.integers(3, 12), st.integers(2, 36), st.integers(0, 6), st.integers(0, 99))
def test_a_code_is_a_group_or_a_class_and_its_certainty(classes: int, codes: int, party: int, seed: int) -> None:
    codes = codes if codes < classes else codes // classes * classes
    p = np.random.default_rng(seed).dirichlet(np.full(classes, 0.3), 20)
    found = CodeBook(classes, codes, party).of(torch.tensor(p)).numpy()
    for row, code in zip(p, found, strict=True):
        if codes < classes:
            groups = [
                sum(row[c] for c in range(classes) if (c + party * (c // codes)) % codes == g) for g in range(codes)
            ]
            assert groups[code] == pytest.approx(max(groups))
        else:
            levels = codes // classes
            assert row[code // levels] == row.max()
            lowest = (1 + (classes - 1) * (code % levels) / levels) / classes
            assert lowest - 1e-9 <= row.max() <= lowest + (classes - 1) / classes / levels + 1e-9


def test_parties_group_classes_so_that_together_they_name_one() -> None:
    pairs = {tuple(int(CodeBook(10, 4, party).groups[c]) for party in (0, 1)) for c in range(10)}
    assert len(pairs) == 10


@pytest.mark.parametrize(
    ("epsilon", "classes", "parties", "codes"),
    [(8, 10, 2, 20), (6, 10, 2, 20), (5, 10, 2, 10), (4, 10, 2, 4), (2, 10, 2, 4), (4, 10, 7, 4), (2, 10, 7, 2),
     (8, 2, 3, 4), (4, 2, 3, 4), (3, 2, 3, 2), (1, 2, 1, 2), (1, 3, 1, 3), (700, 10, 2, 20)],
)  # fmt: skip
def test_the_number_of_codes_follows_from_epsilon_and_classes(
    epsilon: float, classes: int, parties: int, codes: int
) -> None:
    config = DiscretePrivacyConfig(mechanism="discrete", epsilon=epsilon)
    assert number_of_codes(config, classes, parties) == codes
    assert number_of_codes(None, classes, parties) == 2 * classes


@pytest.mark.parametrize("shape", [(5, 16), (5, 4, 4), (5, 3), (5, 3, 2, 2)])
def test_inputs_are_a_row_and_a_constant_with_a_norm_of_at_most_one(shape: tuple[int, ...]) -> None:
    x = 10 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    found = encoder_inputs(x)
    flat = x.mean(1).flatten(1) if x.ndim == 4 else x.flatten(1)
    for row, values in zip(found, flat.tolist(), strict=True):
        parts = [max(-3.0, min(3.0, value)) for value in values]
        for value in list(parts[: len(values)]):
            place = sum(value > edge for edge in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5))
            parts += [float(place == each) for each in range(9)]
        whole = torch.tensor([*(part / math.sqrt(2 * len(values)) for part in parts), 0.5])
        torch.testing.assert_close(row, whole / max(1.0, float(whole.norm())))
    assert float(found.norm(dim=1).max()) <= 1 + 1e-6


def test_inputs_of_a_row_do_not_depend_on_other_rows_and_images_are_oriented_gradients() -> None:
    x = torch.rand(6, 3, 28, 14, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoder_inputs(x), oriented_gradients(x.mean(1)))
    torch.testing.assert_close(encoder_inputs(x[2:3])[0], encoder_inputs(x)[2])
    columns = torch.randn(6, 5)
    torch.testing.assert_close(encoder_inputs(columns[2:3])[0], encoder_inputs(columns)[2])


def test_values_that_are_no_numbers_count_as_zero() -> None:
    assert encoder_inputs(torch.tensor([[math.nan, math.inf, 1.0]])).isfinite().all()


def test_counts_are_those_of_a_loop_under_discrete_laplace_noise() -> None:
    noise, draws = CountNoise(0.3), random.Random(0)
    labels, named = (torch.tensor([draws.randrange(5) for _ in range(200)]) for _ in range(2))
    true = torch.zeros(5, 5, dtype=torch.int64)
    for y, c in zip(labels.tolist(), named.tolist(), strict=True):
        true[y, c] += 1
    found = torch.stack([noise.draw(labels, named, 5, draws.randbytes) for _ in range(400)]) - true
    assert noise.scale == 7 and noise.epsilon == 2 / 7 <= 0.3
    p = math.exp(-1 / 7)
    assert found.double().var().item() == pytest.approx(2 * p / (1 - p) ** 2, rel=0.1)
    assert (found == 0).double().mean().item() == pytest.approx((1 - p) / (1 + p), rel=0.1)
    assert abs(found.double().mean().item()) < 0.5


def test_grouping_finds_what_trying_all_groupings_finds() -> None:
    """Four classes, two codes: one party cannot tell 0 from 1 and 2 from 3, the other 0 from 2 and 1 from 3."""
    sure, pairs = 0.98, ([[0, 1], [2, 3]], [[0, 2], [1, 3]])
    tables = []
    for of_party in pairs:
        table = torch.full((4, 4), (1 - sure) / 2, dtype=torch.float64)
        for a, b in of_party:
            table[[a, b, a, b], [a, b, b, a]] = sure / 2
        tables.append(table)
    grouping = Grouping(tables, 2, kept_codes(2, 1, 0.9))
    begin = [torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])]
    found = grouping.best(begin, [0, 1])
    every = [torch.tensor(each) for each in product(range(2), repeat=4)]
    assert grouping.cost(found) == pytest.approx(min(grouping.cost(pair) for pair in product(every, every)))
    assert found[0][0] == found[0][1] != found[0][2] == found[0][3]
    assert torch.equal(grouping.best(begin, [1])[0], begin[0])


def test_codes_of_two_classes_are_parts_of_the_log_odds() -> None:
    odds = torch.linspace(-6, 6, 200, dtype=torch.float64)
    p = torch.stack([1 - odds.sigmoid(), odds.sigmoid()], 1)
    for codes, bounds in ((2, [0.0]), (4, [-3.5, -1.25, 1.0]), (6, [-3.5, -2.375, -1.25, -0.125, 1.0])):
        wanted = [sum(value > bound for bound in bounds) for value in odds.tolist()]
        assert CodeBook(2, codes).of(p).tolist() == wanted
    assert CodeBook(2, 4).of(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == [0, 3]
