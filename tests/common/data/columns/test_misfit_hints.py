"""Hints for cells that cannot be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from colonnade.common.data.columns import cells


@pytest.mark.parametrize(
    ("cell", "hint"), [("0.7\nk8,0.8", "does a quotation mark lack its partner"), ("0,7", "declare the column")]
)
def test_a_cell_of_several_lines_points_to_a_quotation_mark(cell: str, hint: str) -> None:
    with pytest.raises(cells.Misfit) as refused:
        cells._refuse(pa.array(["1", cell]), pa.array([1.0, None]), "is no number")
    assert hint in refused.value.hint and refused.value.row == 1


def test_a_missing_key_can_be_filled_in_or_its_row_left_out() -> None:
    with pytest.raises(cells.Misfit) as refused:
        cells.keys(pa.array(["a", " "]))
    assert refused.value.hint == "fill it in, or leave the row out"
