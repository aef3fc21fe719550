from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from colonnade.common.data.columns.encode import MOST_WORDS, EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.errors import DataError

NAN = float("nan")
TRAIN = torch.tensor([0, 1, 2])


def table(ages: Sequence[float], towns: Sequence[float], words: tuple[str, ...] = ("Bonn", "Kiel", "Ulm")) -> Features:
    values = torch.tensor([ages, towns], dtype=torch.float64).T.contiguous()
    return Features(values, ("age", "town"), 0, None, (TypedColumn("age"), TypedColumn("town", words)))


def encoded(features: Features, train: Tensor = TRAIN, **how: str) -> list[list[float]]:
    return Encoder.fit(EncodeConfig(**{"scale": "none", **how}), features, train).apply(features).tolist()


FULL = table([10, 20, 60, 5], [1, 2, 1, 1])


def test_words_of_training_rows_become_columns() -> None:
    assert encoded(FULL) == [[10, 1, 0], [20, 0, 1], [60, 1, 0], [5, 1, 0]]


@pytest.mark.parametrize(("missing", "fill"), [("mean", 35.0), ("median", 35.0), ("zero", 0.0)])
def test_missing_numbers_are_imputed_from_training_rows(missing: str, fill: float) -> None:
    gap = table([10, NAN, 60, NAN, 999], [1, 2, 1, 1, 2])
    assert [row[0] for row in encoded(gap, missing=missing)] == [10, fill, 60, fill, 999]


def test_mean_and_median_differ() -> None:
    gap = table([10, 20, 60, NAN], [1, 2, 1, 1])
    assert encoded(gap, missing="mean")[3][0] == 30 and encoded(gap, missing="median")[3][0] == 20


def test_a_missing_word_is_a_category_where_training_rows_have_it() -> None:
    gap = table([1, 1, 1, 1], [1, NAN, 2, NAN])
    assert [row[1:] for row in encoded(gap, missing="mean")] == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert [row[1:] for row in encoded(gap, missing="zero")] == [[1, 0], [0, 0], [0, 1], [0, 0]]
    late = table([1, 1, 1, 1], [1, 1, 2, NAN])
    assert [row[1:] for row in encoded(late, missing="mean")] == [[1, 0], [1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("where", [1, 3])
@pytest.mark.parametrize("column", [0, 1])
def test_missing_values_are_refused_unless_allowed(where: int, column: int) -> None:
    cells = [[10.0, 20.0, 60.0, 5.0], [1.0, 2.0, 1.0, 1.0]]
    cells[column][where] = NAN
    with pytest.raises(DataError, match=f"column '{('age', 'town')[column]}' lacks 1 values"):
        encoded(table(*cells))


def test_unseen_words() -> None:
    unseen = table([1, 1, 1, 1, 1], [1, 2, 1, 0, 0])
    with pytest.raises(
        DataError, match="column 'town': 2 rows have words that no training row has, as 'Bonn'"
    ) as found:
        encoded(unseen)
    placed = replace(unseen, place="t.csv, line {}".format).rows(torch.tensor([4, 3, 2, 1, 0]))
    with pytest.raises(DataError, match=r"^t\.csv, line 3, line 4, column 'town': 2 rows have words .* as 'Bonn'"):
        Encoder.fit(EncodeConfig("none"), unseen, TRAIN).apply(placed)
    assert "unseen: zero" in found.value.hint and "`key`" in found.value.hint
    assert encoded(unseen, unseen="zero")[3] == [1, 0, 0]


def test_an_encoder_goes_by_words_and_not_by_codes() -> None:
    fitted = Encoder.fit(EncodeConfig("none", unseen="zero"), FULL, TRAIN)
    other = table([1, 2, 3], [0, 1, 2], ("Kiel", "Rom", "Ulm"))
    assert fitted.apply(other).tolist() == [[1, 1, 0], [2, 0, 0], [3, 0, 1]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((TypedColumn("age"), TypedColumn("town")), "has town of numbers where training had town of words"),
        ((TypedColumn("size"), TypedColumn("town", ("Ulm",))), "has size of numbers where training had age of numbers"),
        ((TypedColumn("age"),), "has 1 columns where training had 2 columns"),
    ],
)
def test_other_columns_are_refused(fields: tuple[TypedColumn, ...], message: str) -> None:
    other = Features(torch.zeros(2, len(fields), dtype=torch.float64), tuple(f.name for f in fields), fields=fields)
    with pytest.raises(DataError, match=message):
        Encoder.fit(EncodeConfig("none"), FULL, TRAIN).apply(other)


def test_a_column_of_names_is_no_category() -> None:
    words = tuple(f"{number:05d}" for number in range(MOST_WORDS + 1))
    codes = list(range(MOST_WORDS + 1))
    with pytest.raises(DataError, match="column 'town' has 1001 categories, more than 1000"):
        encoded(table(codes, codes, words), torch.arange(MOST_WORDS + 1))
    assert len(encoded(table(codes, codes, words), torch.arange(MOST_WORDS), unseen="zero")[0]) == MOST_WORDS + 1


@pytest.mark.parametrize("how", [{"scale": "standard"}, {"scale": "unit"}])
def test_a_table_of_words_alone(how: dict[str, str]) -> None:
    only = Features(torch.tensor([[0.0], [1.0]], dtype=torch.float64), ("x",), fields=(TypedColumn("x", ("a", "b")),))
    assert encoded(only, torch.arange(2), **how) == [[1, 0], [0, 1]]


ages = st.floats(-1e6, 1e6).map(lambda age: round(age, 3))  # of a spread that other numbers can be scaled by
rows = st.lists(st.tuples(ages, st.integers(0, 2)), min_size=4, max_size=12)


@given(rows)
def test_it_equals_scikit_learns_result(cells: list[tuple[float, int]]) -> None:
    features = table(*map(list, zip(*cells, strict=True)))
    how = EncodeConfig("standard", unseen="zero")
    made = Encoder.fit(how, features, TRAIN).apply(features).numpy()
    training = features.values[TRAIN].numpy()
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(training[:, 1:])
    np.testing.assert_array_equal(made[:, 1:], words.transform(features.values[:, 1:].numpy()))
    if np.ptp(training[:, 0]) > 1e-3:
        scaled = StandardScaler().fit(training[:, :1]).transform(features.values[:, :1].numpy())
        np.testing.assert_allclose(made[:, :1], scaled, rtol=1e-5, atol=1e-5)


@given(rows, ages, st.integers(0, 2))
def test_other_rows_do_not_change_the_fit(cells: list[tuple[float, int]], age: float, town: int) -> None:
    how = EncodeConfig("standard", missing="mean", unseen="zero")
    one = table(*map(list, zip(*cells, strict=True)))
    other = table(*map(list, zip(*cells[:3], *[(age, town)] * (len(cells) - 3), strict=True)))
    assert torch.equal(Encoder.fit(how, one, TRAIN).apply(FULL), Encoder.fit(how, other, TRAIN).apply(FULL))


def test_rows_can_be_chosen_and_put_in_order() -> None:
    keyed = Features(FULL.values, FULL.names, 2, ("a", "b", "c", "d"), FULL.fields)
    chosen = keyed.rows(torch.tensor([3, 0]))
    assert chosen.ids == ("d", "a") and chosen.official_test == 0 and chosen.values[:, 0].tolist() == [5, 10]
    assert chosen.fields == keyed.fields and keyed.rows(torch.arange(4)).fingerprint == keyed.fingerprint
    assert len({keyed.fingerprint, chosen.fingerprint, FULL.fingerprint}) == 3
