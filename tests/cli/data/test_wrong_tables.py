"""Invalid tables: `check` and `simulate` name the party, the file, the error and the remedy."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.errors import DataError
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from tests.support.tables import table_tree, write_tables

Change = Callable[[Path, dict[str, Any]], object]


def party(tree: dict[str, Any], **data: Any) -> None:
    tree["parties"]["party1"]["data"].update(data)


def line(number: int, text: str, table: str = "party1.csv") -> Change:
    """Puts another line in the place of one, counted from 1."""

    def change(folder: Path, _tree: dict[str, Any]) -> None:
        lines = (folder / table).read_text().splitlines()
        lines[number - 1] = text
        (folder / table).write_text("\n".join(lines) + "\n")

    return change


def replaced(what: str, by: str) -> Change:
    def change(folder: Path, _tree: dict[str, Any]) -> None:
        table = folder / "party1.csv"
        table.write_text(table.read_text().replace(what, by))

    return change


def as_parquet(folder: Path, tree: dict[str, Any]) -> None:
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "party1.csv"), folder / "party1.parquet")
    tree["parties"]["party1"]["data"] = {"source": "parquet", "path": "party1.parquet", "key": "whom"}


def other_source(_folder: Path, tree: dict[str, Any]) -> None:
    tree["parties"]["party1"]["data"] = {"source": "arrow", "path": "party1.csv", "key": "who"}


def in_latin1(folder: Path, _tree: dict[str, Any]) -> None:
    with (folder / "party1.csv").open("ab") as table:
        table.write("Grün,1,2,3\n".encode("latin-1"))


WRONG: dict[str, tuple[Change, str]] = {
    "no such key": (lambda _f, t: party(t, id="whoo"), r"^party1: .*party1\.csv has no column 'whoo' \(did you mean"),
    "no such key in parquet": (as_parquet, r"^party1: .*party1\.parquet has no column 'whom' \(did you mean 'who'\?\)"),
    "a key twice": (line(3, "Person 0,1,2,3\nPerson 0,1,2,3"), r"^party1: .*'Person 0' in .*line 3 and .*line 4"),
    "a key twice but for spaces": (
        line(3, "Person 0,1,2,3\n Person 0,1,2,3"),
        r"^party1: 1 of \d+ rows repeat the",
    ),
    "fractions": (
        replaced("Person 00", "1."),
        r"^party1: .*party1\.csv, column 'who': keys are fractions, such as",
    ),
    "leading zeros": (replaced("Person ", "Person 0"), r"^federation\.align = psi: no key is common to all members"),
    "a line too long": (line(8, "Person 0,1,2,3,4"), r"^party1: .*party1\.csv, line 8: 5 values for the 4 columns"),
    "an open quote": (
        line(8, '"Person 0,1,2,3'),
        r"^party1: .*party1\.csv, line 8, column 'who': a quotation mark lacks its partner",
    ),
    "no number": (line(8, "Person 0,1,oops,3"), r"^party1: .*party1\.csv, line 8, column 'c1': 'oops' is no number"),
    "other letters": (in_latin1, r"^party1: .*party1\.csv, line 56: byte 0xfc is not UTF-8"),
    "another delimiter": (replaced(",", ";"), r"^party1: .*party1\.csv, line 1: the one column 'who;c0;c1;c2'"),
    "another source": (other_source, r"^party1: .*party1\.csv cannot be read"),
    "no such label": (
        lambda _f, t: t["server"]["labels"].update(label="labl"),
        r"^server: .*server\.csv has no col",
    ),
    "a label missing": (
        line(8, "Person 0,", "server.csv"),
        r"^server: .*server\.csv, line 8, column 'label': the val",
    ),
    "a class too many": (
        line(8, "Person 0,2", "server.csv"),
        r"^federation\.classes says 2 classes, the labels have",
    ),
}


def both(file: Path, said: str) -> None:
    """`simulate` gives the same message as `check`."""
    with pytest.raises(DataError, match=said) as checked:
        check(file, ())
    with pytest.raises(DataError, match=said) as simulated:
        Simulation(load(file), file.parent).run()
    assert checked.value.hint == simulated.value.hint != ""


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("no_garbage")
@pytest.mark.filterwarnings("error")  # as of coroutines that were not awaited
def test_a_wrong_table_is_refused_by_name_file_place_and_remedy(case: str, tmp_path: Path) -> None:
    change, said = WRONG[case]
    tree = table_tree(batch=4, epochs=1, keys={"seeded": True})
    write_tables(tmp_path, persons=60)
    change(tmp_path, tree)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(tree))
    both(tmp_path / "federation.yaml", said)


def in_order(folder: Path, keys: list[str]) -> Path:
    """Two parties' tables in the server's order, but for the keys of the second."""
    for member, columns in (("server", ["label"]), ("party1", ["c0"]), ("party2", ["c0"])):
        with (folder / f"{member}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["who", *columns])
            lines.writerows([key if member == "party2" else str(row), row % 2] for row, key in enumerate(keys))
    file = folder / "federation.yaml"
    file.write_text(yaml.safe_dump(table_tree(batch=4, epochs=1, align="none")))
    return file


def test_rows_that_need_the_same_order_need_the_same_keys(tmp_path: Path) -> None:
    keys = [str(row) for row in range(40)]
    check(in_order(tmp_path, [f" {key}" for key in keys]), ())  # the same, as federation.keys has it
    with pytest.raises(DataError, match=r"party2: the keys .* or their order does") as refused:
        check(in_order(tmp_path, [*keys[1:], keys[0]]), ())
    assert "federation.align: psi" in refused.value.hint


def test_too_few_rows_are_refused_on_the_virtual_clock_too(tmp_path: Path) -> None:
    file = in_order(tmp_path, [str(row) for row in range(40)])
    lines = (tmp_path / "party2.csv").read_text().splitlines()
    (tmp_path / "party2.csv").write_text("\n".join(lines[:-1]) + "\n")
    both(file, "party2 has 39 rows, the labels have 40")


@pytest.mark.parametrize("align", ["psi", "sorted"])
def test_check_counts_the_common_rows(align: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ids = write_tables(tmp_path, persons=40, share=1.0 if align == "sorted" else 0.9)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree(batch=4, align=align)))
    check(tmp_path / "federation.yaml", ())
    common = len(set.intersection(*map(set, ids.values())))
    assert f"{common} rows are common to all" in capfd.readouterr().out


def test_sections_that_the_protocol_does_not_use_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(tmp_path)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree()))
    given = ("parties.party1.head={name: mlp, hidden: 7}", "every_party.optimiser.lr=0.5", "server.head=mlp")
    check(tmp_path / "federation.yaml", ("federation.protocol={name: fdml}", *given))
    said = [line for line in capsys.readouterr().out.splitlines() if "does not use" in line]
    assert said == [f"{who}: the protocol fdml does not use `head` of this section" for who in ("server", "party1")]


def test_ids_that_no_key_names_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tables(tmp_path)
    rows = list(csv.reader((tmp_path / "party1.csv").open()))
    with (tmp_path / "party1.csv").open("w", newline="") as table:
        csv.writer(table).writerows([[*row, "client" if n == 0 else 7000 - n] for n, row in enumerate(rows)])
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree()))
    check(tmp_path / "federation.yaml", ())
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "every row" in line]
    assert line.startswith("party1: 'client' is a feature") and "drop: [client]" in line
