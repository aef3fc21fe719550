from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from colonnade.common.config.data.sources import LabelConfig
from colonnade.common.config.run_options import Task
from colonnade.common.data.labels import LabelColumn, classify
from colonnade.common.data.sources import load_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import DataError


def test_numbers_keep_their_value() -> None:
    values, classes = classify(["2", "0", "1.0", "2"], "t.csv")
    assert values.tolist() == [2, 0, 1, 2] and values.dtype == torch.int64
    assert classes == ("0", "1", "2")


def test_names_are_sorted() -> None:
    values, classes = classify(["yes", "no", "yes"], "t.csv")
    assert values.tolist() == [1, 0, 1] and classes == ("no", "yes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0", "0.5"], "holds 0.5, which is no class"),
        (["1", "2", "3"], "numbers its classes 1, 2, 3 instead of 0 to 2"),
        (["-1", "1"], "numbers its classes -1, 1 instead of 0 to 1"),
        (["0", "2"], "numbers its classes 0, 2 instead of 0 to 1"),
        ([str(2 * k) for k in range(20)], r"numbers its classes 0, 2, 4, 6, 8, 10, 12, 14, \.\.\. instead"),
        (["0", str(2**64 - 1)], "numbers its classes 0, 18446744073709551615 instead of 0 to 1"),
        (["0", "1e+999"], "holds inf, which is no class"),
        (["0", "0"], "has the single class '0'"),
        (["a", "a"], "has the single class 'a'"),
    ],
)
def test_refuses(words: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"^t.csv {message}") as caught:
        classify(words, "t.csv")
    assert caught.value.hint


MARK = "in 1 rows (first in {}, line 4); if it stands for a missing label, say `missing_values: ["
POINTS = "it may separate thousands; if it is, `decimal: ',', thousands: '.'`"


@pytest.mark.parametrize(
    ("task", "cells", "said"),
    [
        ("classification", "yes no None yes", f"has the class 'None' {MARK}'None'], missing: drop` of the labels"),
        ("classification", "0 1 - 1", f"has the class '-' {MARK}'-'], missing: drop` of the labels"),
        ("classification", "yes no NA yes", f"has the class 'NA' {MARK}'NA'], missing: drop`"),
        (
            "classification",
            "yes no yes\u200b yes",
            r"alone ('yes\u200b' and 'yes'), in 1 rows (first in {}, line 4; the",
        ),
        (
            "classification",
            "no ja No ja no",
            "alone ('No' and 'no'), in 1 rows (first in {}, line 4; the more frequent one in",
        ),
        ("classification", "A B \u0410 A", "alone ('\\u0410' and 'A'), in 1 rows (first in {}, line 4; the"),
        ("regression", "1.100 2.107 7", POINTS),
        ("regression", "20240301 20240302", "look like dates without marks (YYYYMMDD); write dates as days"),
        ("regression", "1.1 1.10 2.5", "as versions and codes are (1.1 and 1.10); write dates"),
    ],
)
def test_labels_are_doubted_as_columns_are(tmp_path: Path, task: Task, cells: str, said: str) -> None:
    path = tmp_path / "y.csv"
    path.write_text("\n".join(["y", *cells.split(" ")]))
    how = TypeAdapter(LabelConfig).validate_python({"source": "csv", "path": "y.csv", "label": "y"})
    (doubt,) = map(str, load_labels(how, tmp_path, task).doubts)
    assert said.replace("{}", str(path)) in doubt and "`types" not in doubt


def weighed(folder: Path, *weights: str) -> LabelColumn:
    """Labels of rows with these weights, the second of which has no label."""
    lines = [f"{'' if row == 1 else row % 2},{weight}" for row, weight in enumerate(weights)]
    (folder / "y.csv").write_text("\n".join(["y,w", *lines]))
    how = {"source": "csv", "path": "y.csv", "label": "y", "weight": "w", "missing": "drop"}
    for _ in range(2):  # the second is a copy
        cache = TableCache(folder, writes=True)
        found = load_labels(TypeAdapter(LabelConfig).validate_python(how), folder, cache=cache)
        cache.keep()
    return found


def test_weights_are_those_of_the_rows_with_labels(tmp_path: Path) -> None:
    found = weighed(tmp_path, "1", "-7", "0", "2.5")
    assert found.weights is not None and found.weights.tolist() == [1, 0, 2.5]
    picked = found.rows(torch.tensor([2, 0])).weights
    assert picked is not None and picked.tolist() == [2.5, 1]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (("1", "1", "2", "-1"), r"y\.csv, line 5, column 'w': a weight of -1 is not 0 or more"),
        (("1", "1", "", "2"), r"y\.csv, line 4, column 'w': a weight is missing"),
        (("0", "1", "0", "0"), "all weights are 0"),
    ],
)
def test_weights_below_zero_or_missing_are_refused(tmp_path: Path, weights: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        weighed(tmp_path, *weights)


@pytest.mark.parametrize("value", [-1.0, 0.5])
def test_what_is_no_count_is_refused(value: float) -> None:
    values = torch.tensor([[0.0], [3.0], [value]], dtype=torch.float64)
    with pytest.raises(DataError, match=f"t.csv, line 4: {value:g} is no count"):
        LabelColumn(values, (), place=lambda row: f"t.csv, line {row + 2}").refuse_no_counts()
    LabelColumn(values.abs(), (), weights=torch.ones(3)).refuse_no_counts()  # rates
