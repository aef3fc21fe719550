import pytest
import torch

from colonnade.common.data.labels import classify
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
        (["0", "0"], "has the single class '0'"),
        (["a", "a"], "has the single class 'a'"),
    ],
)
def test_refuses(words: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"^t.csv {message}") as caught:
        classify(words, "t.csv")
    assert caught.value.hint
