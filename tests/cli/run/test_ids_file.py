"""A file with one column of ids is read as Python's csv reads it, or refused for a stray quotation mark."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade.common.errors import DataError
from colonnade.launcher.prediction_files import PredictionIds

ENDS = st.sampled_from(["\n", "\r\n", "\r", ""])
CELLS = st.text(st.sampled_from('ab é,"\u2028\x0b\x85\x1c'), max_size=5)


def by_csv(path: Path) -> list[str] | None:
    """The ids, or None where a line is broken."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = filter(None, csv.reader(file))  # blank lines do not count
    whole = all(len(row) == 1 and row[0].strip() and not set("\r\n") & set(row[0]) for row in rows)
    return [row[0] for row in rows] if whole else None


@settings(deadline=None, max_examples=200)
@given(lines=st.lists(st.tuples(CELLS, ENDS), max_size=9))
@example(lines=[("", "\n"), ("a", "\n"), ("", "\r\n"), ("b", "\n"), ("", "\n")])
@example(lines=[("a", "\n"), ('"b', "\n"), ('c"', "\n"), ("d", "")])
@example(lines=[("a", "\r"), ("b", "\r\n"), ("c", "\n"), ("", "\n")])
def test_it_is_read_as_csv_reads_it(lines: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.csv"
        path.write_text("id\n" + "".join(cell + end for cell, end in lines), encoding="utf-8", newline="")
        expected = by_csv(path)
        if expected is None:
            with pytest.raises(DataError, match="line "):
                list(PredictionIds(path).ids())
            return
        try:
            assert list(PredictionIds(path).ids()) == expected
        except DataError as refused:
            assert "a quotation mark lacks its partner" in str(refused) and '"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("# exported\nid\na\nb,c\n", None),
        ("# exported\n\nid\na\nb\n\x1a", ["a", "b"]),
        ("sep=;\nid;x\na;1\nb;2\n   \n\x1a", ["a", "b"]),
        ("\ufeff\nsep=;\n# x\nid\na,b\n", ["a,b"]),
        ('# one\n"id"\n"a"\n\x1a\n', ["a"]),
        ("#id\na\n", ["a"]),
    ],
)
def test_lines_above_the_header_are_those_that_tables_may_have(
    tmp_path: Path, text: str, key: list[str] | None
) -> None:
    path = tmp_path / "ids.csv"
    path.write_text(text, encoding="utf-8")
    ids = PredictionIds(path, "#id" if text.startswith("#id") else "id")
    if key is None:
        with pytest.raises(DataError, match="line 4: 2 values for the 1 columns"):
            list(ids.ids())
    else:
        assert list(ids.ids()) == key
