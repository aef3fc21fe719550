"""The row of an id, if rows are in the same order already."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError
from colonnade.common.parsing.file import parse
from colonnade.server.prediction.row_index import RowIndex
from tests.support.federation import tree


def row_index(*ids: str, **keys: object) -> RowIndex:
    labels = LabelColumn(torch.zeros(len(ids), dtype=torch.int64), ("0",), ids=ids)
    return RowIndex(parse(tree({"name": "split"}, keys=keys)).federation, labels)


def test_ids_are_compared_as_the_federation_says() -> None:
    assert [row_index("7", " Ann ").place(id) for id in ("7", " 7 ", "Ann", "ann")] == [0, 0, 1, None]
    assert [row_index("7", "Ann", case="fold").place(id) for id in ("ANN", "bob")] == [1, None]
    exact = row_index("7", " 7", trim=False)
    assert [exact.place(id) for id in ("7", " 7", "7 ")] == [0, 1, None]


def test_keys_that_are_the_same_name_no_row() -> None:
    with pytest.raises(DataError, match="server: 1 of 2 rows repeat the key of another row"):
        row_index("7", " 7")
