"""The row of an id, if rows are in the same order already."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.alignment import KeysConfig
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError
from colonnade.common.parsing.file import parse
from colonnade.server.prediction.row_index import RowIndex
from tests.support.federation import tree


def row_index(*ids: str, **keys: object) -> RowIndex:
    labels = LabelColumn(torch.zeros(len(ids), dtype=torch.int64), ("0",), ids=ids)
    return RowIndex(parse(tree({"name": "split"}, keys=keys)).federation, labels)


def test_ids_are_compared_as_the_federation_says() -> None:
    assert row_index("7", " Ann ").positions(["7", " 7 ", "Ann", "ann"]).tolist() == [0, 0, 1, -1]
    assert row_index("7", "Ann", case="fold").positions(["ANN", "bob"]).tolist() == [1, -1]
    exact = row_index("7", " 7", trim=False)
    assert exact.positions(["7", " 7", "7 "]).tolist() == [0, 1, -1]


def test_no_ids_have_no_positions() -> None:
    assert row_index("7").positions([]).dtype == torch.int64


def test_keys_that_are_the_same_name_no_row() -> None:
    with pytest.raises(DataError, match="server: 1 of 2 rows repeat the key of another row"):
        row_index("7", " 7")


SPELLINGS = st.text(st.sampled_from("aA\u00c5\u212b\ufb01\u0130\u00a0\u3000 \t\x1f1"), max_size=4)
CASES, FORMS = st.sampled_from(["fold", "keep"]), st.sampled_from(["nfkc", "keep"])


@given(st.lists(SPELLINGS, max_size=5), st.booleans(), CASES, FORMS)
def test_many_keys_are_compared_as_each_of_them(keys: list[str], trim: bool, case: str, unicode: str) -> None:
    config = KeysConfig.model_validate({"trim": trim, "case": case, "unicode": unicode})
    assert config.normals(keys) == [config.normal(key) for key in keys]
    plain = [key for key in keys if key.isascii()]
    assert config.normals(plain) == [config.normal(key) for key in plain]
