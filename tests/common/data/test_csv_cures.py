"""Spoilt CSV files: each is read as what it is, or refused with a hint that works when it is followed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.features import Features
from colonnade.common.data.sources import load_features
from colonnade.common.errors import DataError

data = TypeAdapter(DataConfig).validate_python
LINES = ["id,town,size", *(f"k{row},{'abc'[row % 3]},{row}.5" for row in range(300))]


def read(folder: Path, lines: list[str], *, name: str = "t.csv", **more: str) -> Features:
    if lines:
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_features(data({"source": "csv", "path": name, "key": "id", **more}), PartyIndex(0, 1), folder)


@pytest.mark.parametrize(
    "above", [["sep=,"], ["SEP=,"], ['"sep=,"'], ["# export of 2026-11-01"], ["# one", "#two, with a comma"], ["#"],
    ["sep=,", "# one"], ["# one", "sep=,"], ["# one", ""], ["", "# one"], ["", "sep=,"],
    ["  ", "#one", " ", "#two", ""]])  # fmt: skip
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_notes_above_the_header_are_no_rows(tmp_path: Path, above: list[str], bom: str) -> None:
    whole = read(tmp_path, LINES)
    found = read(tmp_path, [bom + above[0], *above[1:], *LINES])
    assert found.fingerprint == whole.fingerprint
    line = 9 + len(above)
    with pytest.raises(DataError, match=rf"t\.csv, line {line}, column 'size': 'x' is no number"):
        read(tmp_path, [*above, *LINES[:8], "k7,b,x", *LINES[9:]])


@pytest.mark.parametrize("last", ["   ", "\x1a", "\t"])
def test_a_line_of_white_space_or_a_closing_control_z_is_no_row(tmp_path: Path, last: str) -> None:
    assert read(tmp_path, [*LINES, last]).fingerprint == read(tmp_path, LINES).fingerprint
    with pytest.raises(DataError, match=r"t\.csv, line 11, column 'size': 'x' is no number"):
        read(tmp_path, [*LINES[:8], last, "", "k7,b,x", *LINES[9:]])


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_that_a_file_names_is_its_own(tmp_path: Path, mark: str) -> None:
    found = read(tmp_path, [f"sep={mark}", *(line.replace(",", mark) for line in LINES)])
    assert found.fingerprint == read(tmp_path, LINES).fingerprint


def test_a_name_that_begins_with_a_hash_is_a_name(tmp_path: Path) -> None:
    lines = ["#id,town,size", *LINES[1:]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    config = data({"source": "csv", "path": "t.csv", "key": "#id"})
    assert len(load_features(config, PartyIndex(0, 1), tmp_path).values) == 300


def test_a_comment_between_rows_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 5: 1 values for the 3 columns") as refused:
        read(tmp_path, [*LINES[:4], "# a comment", *LINES[4:]])
    assert "take the line away" in refused.value.hint
    read(tmp_path, LINES)


@pytest.mark.parametrize(("end", "bom"), [("\n", ""), ("\r\n", ""), ("\n", "\ufeff")])
def test_lines_in_quotation_marks_are_bared_by_the_command_of_the_hint(tmp_path: Path, end: str, bom: str) -> None:
    lines = [line.replace("k5,c", 'k5,""c""') for line in LINES]
    (tmp_path / "a b.csv").write_bytes((bom + end.join(f'"{line}"' for line in lines) + end).encode())
    with pytest.raises(DataError, match=r"line 1: the line stands in quotation marks as a whole") as refused:
        read(tmp_path, [], name="a b.csv")
    (command,) = re.findall(r"`(sed .*?)`", refused.value.hint)
    subprocess.run(command, shell=True, check=True)
    assert read(tmp_path, [], name="a b-unquoted.csv").fingerprint == read(tmp_path, LINES).fingerprint


@pytest.mark.parametrize("row", [1, 100, 299])
@pytest.mark.parametrize("column", ["town", "size"])
def test_a_lone_quotation_mark_is_found_and_its_removal_cures(tmp_path: Path, row: int, column: str) -> None:
    cells = LINES[row].split(",")
    place = LINES[0].split(",").index(column)
    cells[place] = '"' + cells[place]
    lines = [*LINES[:row], ",".join(cells), *LINES[row + 1 :]]
    with pytest.raises(DataError, match=rf"t\.csv, line {row + 1}, column '{column}': ") as refused:
        read(tmp_path, lines)
    assert "remove" in refused.value.hint and "quotation mark" in f"{refused.value} {refused.value.hint}"
    lines[row] = lines[row].replace('"', "")
    read(tmp_path, lines)


def test_keys_that_a_spreadsheet_has_shortened_are_said_to_be(tmp_path: Path) -> None:
    keys = [f"{4020000000000 + row * 1000003}" for row in range(300)]
    short = [key if row % 3 else f"{int(key):.3E}" for row, key in enumerate(keys)]
    with pytest.raises(
        DataError, match=r"numbers that a spreadsheet has shortened, so that .* keys stand in"
    ) as refused:
        read(tmp_path, [LINES[0], *(f"{key},a,{row}" for row, key in enumerate(short))])
    assert "write all digits again" in refused.value.hint


@pytest.mark.parametrize("mark", [",", "'", "’", " ", "\u202f"])
def test_keys_with_separators_of_thousands_are_said(tmp_path: Path, mark: str) -> None:
    keys = [f"{row * 7001 + 1000:,}".replace(",", mark) for row in range(300)]
    found = read(tmp_path, [LINES[0], *(f'"{key}",{"ab"[row % 2]},{row}' for row, key in enumerate(keys))])
    assert any("300 of 300 keys have separators of thousands" in str(doubt) for doubt in doubts(found))
