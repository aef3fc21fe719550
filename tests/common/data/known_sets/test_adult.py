"""The Adult census in small, and the real one where COLONNADE_DATA names it."""

import gzip
import re
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.known_sets.adult import CLASSES, FIELDS, holds, read_columns, read_labels, read_rows
from colonnade.common.data.sources import load_features, load_labels, prepare
from colonnade.common.errors import ConfigError, DataError

ALONE = PartyIndex(0, 1)
TRAINING = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Female, 0, 7, 13, ?, >50K

"""
TEST = "|1x3 Cross validator\n" + TRAINING.splitlines()[0] + ".\n\n"
data = TypeAdapter(DataConfig).validate_python
labels = TypeAdapter(LabelConfig).validate_python


def write(folder: Path, training: str = TRAINING, test: str = TEST) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adult.data").write_text(training)
    (folder / "adult.test.gz").write_bytes(gzip.compress(test.encode()))
    return folder


def test_numbers_are_columns_and_words_are_zeros_and_ones(tmp_path: Path) -> None:
    census = read_columns(write(tmp_path / "a"), ["sex", "age", "workclass"])
    assert census.names == ("sex=Female", "sex=Male", "age", *(f"workclass={word}" for word in FIELDS["workclass"]))
    assert census.shape == (11,) and census.official_test == 1 and census.ids() is None
    config = data({"source": "adult", "folder": "a", "columns": ["sex", "age", "workclass"]})
    features = load_features(config, ALONE, tmp_path)
    assert features.names == census.names and features.official_test == 1 and features.values.dtype == torch.float64
    employed = [0.0] * 5 + [1.0] + [0.0] * 2  # State-gov
    assert features.values.tolist() == [[0, 1, 39, *employed], [1, 0, 50] + [0] * 8, [0, 1, 39, *employed]]


def test_all_lines_as_words(tmp_path: Path) -> None:
    header, rows = read_rows(write(tmp_path / "a"))
    assert header == (*FIELDS, "income") and len(rows) == 3 and all(len(row) == 15 for row in rows)
    assert rows[0] == rows[2] and rows[0][:2] == ["39", "State-gov"] and rows[0][-1] == "<=50K"
    assert [rows[1][place] for place in (1, 6, 13, 14)] == ["", "", "", ">50K"]


def test_all_columns_unless_some_are_listed(tmp_path: Path) -> None:
    """105 columns: 6 numbers, 99 words. Every complete row has 8 words."""
    features = load_features(data({"source": "adult", "folder": "a"}), ALONE, write(tmp_path / "a").parent)
    assert features.values.shape == (3, 105)
    words = torch.tensor(["=" in name for name in features.names])
    assert features.values[:, words].sum(1).tolist() == [8, 5, 8]


def test_columns_are_dealt_by_a_split_too(tmp_path: Path) -> None:
    config = data({"source": "adult", "folder": "a", "columns": ["age", "fnlwgt"], "split": "columns"})
    write(tmp_path / "a")
    assert load_features(config, PartyIndex(1, 2), tmp_path).values.tolist() == [[77516], [83311], [77516]]


def test_numbers_are_scaled_by_the_training_rows_and_words_stay(tmp_path: Path) -> None:
    config = data({"source": "adult", "folder": "a", "columns": ["age", "sex"]})
    features = load_features(config, ALONE, write(tmp_path / "a").parent)
    columns = prepare(config, features, torch.tensor([0]), 0, "party")
    torch.testing.assert_close(columns[torch.arange(2)], torch.tensor([[1.0, 0, 1], [50 / 39, 1, 0]]))


def test_words_are_put_together_again_before_they_are_encoded(tmp_path: Path) -> None:
    config = data({"source": "adult", "folder": "a", "columns": ["sex", "age", "workclass"]})
    features = load_features(config, ALONE, write(tmp_path / "a").parent)
    table = prepare(config, features, torch.tensor([0]), 0, "party", typed=True).table
    assert table is not None and table.names == ("sex", "age", "workclass")
    sex, age, work = table.fields
    assert age.words is None and (sex.words, len(work.words or ())) == (("Female", "Male"), 8)
    assert table.values.nan_to_num(-1).tolist() == [[1, 39, 6], [0, 50, -1], [1, 39, 6]]
    assert work.words is not None and work.words[6] == "State-gov"


def test_labels_with_and_without_a_full_stop(tmp_path: Path) -> None:
    found = load_labels(labels({"source": "adult", "folder": "a"}), write(tmp_path / "a").parent)
    assert found.values.tolist() == [0, 1, 0] and found.values.dtype == torch.int64
    assert found.classes == CLASSES and found.official_test == 1


def test_both_files_must_be_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    assert holds(folder)
    (folder / "adult.test.gz").unlink()
    assert not holds(folder)
    with pytest.raises(DataError, match=r"has no adult\.test"):
        read_labels(folder)
    with pytest.raises(DataError, match=r"is a folder, and no adult\.data and adult\.test"):
        load_labels(labels({"source": "adult", "folder": str(folder)}), tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("50, ?", "50", "line 2: 14 values instead of 15"),
        ("50, ?", "fifty, ?", "line 2: 'fifty' is no value of its column"),
        ("50, ?", "?, ?", "line 2: '?' is no value of its column"),
        ("Black", "Blue", "line 2: 'Blue' is no value of its column"),
        (TRAINING, "\n", "adult.data has no rows"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, before: str, after: str, message: str) -> None:
    folder = write(tmp_path / "a", TRAINING.replace(before, after))
    with pytest.raises(DataError, match=re.escape(message)):
        read_columns(folder)


def test_a_class_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: the class '50K' is neither <=50K nor >50K"):
        read_labels(write(tmp_path / "a", TRAINING.replace(">50K", "50K")))


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["age", "sexx"], r"no column 'sexx' \(did you mean 'sex'\?\)"), (["age", "age"], "column 'age' is listed twice")],
)
def test_columns_that_are_wrong(tmp_path: Path, columns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_columns(write(tmp_path / "a"), columns)


@pytest.mark.papers
def test_the_census_itself(data_root: Path) -> None:
    """Counts as its documentation gives them."""
    census = read_columns(data_root / "adult")
    values, official_test = read_labels(data_root / "adult")
    assert census.official_test == official_test == 16_281 and len(values) == 48_842
    assert values[:32_561].sum() == 7_841 and values[32_561:].sum() == 3_846
    features = load_features(data({"source": "adult", "folder": "adult"}), ALONE, data_root)
    words = torch.tensor(["=" in name for name in features.names])
    lacking = features.values[:, words].sum(1) < 8
    assert int(lacking[:32_561].sum()) == 2_399 and int(lacking[32_561:].sum()) == 1_221
