"""`colonnade new federation`: a start that runs at once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support.household import colonnade


def keys(path: Path) -> list[str]:
    with path.open(newline="") as lines:
        return [row["person"] for row in csv.DictReader(lines)]


@pytest.mark.slow
@pytest.mark.parametrize(("align", "command"), [("psi", "up"), ("sorted", ""), ("none", "simulate")])
def test_it_trains_and_predicts_at_once(tmp_path: Path, align: str, command: str) -> None:
    start = tmp_path / "start"
    code, said = colonnade("new", "federation", start, "--parties", "bank, clinic", "--align", align)
    assert code == 0 and "next: colonnade up" in said, said
    names = {"README.md", "bank.csv", "clinic.csv", "federation.yaml", "ids.csv", "server.csv"}
    assert {path.name for path in start.iterdir()} == names
    code, said = colonnade("check", start / "federation.yaml")
    assert code == 0 and "no error and 1 warning found" in " ".join(said.split()), said
    if not command:
        return
    code, said = colonnade(command, start / "federation.yaml", "--out", start / "run")
    assert code == 0, said
    assert json.loads((start / "run" / "summary.json").read_text())["metrics"]["test_auc"] > 0.8
    code, said = colonnade("predict", start / "run", "--ids", start / "ids.csv", "--out", start / "out.csv")
    assert code == 0, said
    with (start / "out.csv").open(newline="") as lines:
        predicted = {row["id"]: row["class"] for row in csv.DictReader(lines)}
    assert list(predicted) == keys(start / "ids.csv") and all(predicted.values())


def test_under_psi_the_tables_overlap_partly(tmp_path: Path) -> None:
    code, said = colonnade("new", "federation", tmp_path / "start", "--parties", "a,b,c")
    assert code == 0, said
    held = {name: keys(tmp_path / "start" / f"{name}.csv") for name in ("server", "a", "b", "c")}
    common = set.intersection(*map(set, held.values()))
    asked = set(keys(tmp_path / "start" / "ids.csv"))
    assert 300 < len(common) < min(map(len, held.values()))
    assert asked <= set(held["a"]) & set(held["b"]) & set(held["c"]) and asked - set(held["server"])


def test_names_that_yaml_reads_as_something_else(tmp_path: Path) -> None:
    assert colonnade("new", "federation", tmp_path / "1e3", "--parties", "on,1234,null")[0] == 0
    code, said = colonnade("check", tmp_path / "1e3" / "federation.yaml")
    assert code == 0 and all(f"{name}: " in said for name in ("on", "1234", "null")), said


@pytest.mark.parametrize(
    ("parties", "said"),
    [
        ("Bank", "'Bank' is not a name for a party"),
        ("bank,", "'' is not a name for a party"),
        ("../bank", "'../bank' is not a name for a party"),
        ("bank,server", "'server' is the server's name"),
        ("bank,ids", "'ids' is the name of the file with the ids to predict"),
        ("bank,clinic,bank", "'bank' is listed twice"),
        (",".join(f"p{number}" for number in range(17)), "17 names, expected at most 16"),
    ],
)
def test_a_wrong_name_writes_nothing(tmp_path: Path, parties: str, said: str) -> None:
    code, output = colonnade("new", "federation", tmp_path / "start", "--parties", parties)
    assert code == 2 and said in " ".join(output.split()), output
    assert not (tmp_path / "start").exists()


def test_an_unknown_alignment_writes_nothing(tmp_path: Path) -> None:
    assert colonnade("new", "federation", tmp_path / "start", "--align", "fuzzy")[0] == 2
    assert not (tmp_path / "start").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, said in (("start", "is not empty"), ("file", "is a file")):
        code, output = colonnade("new", "federation", tmp_path / name)
        assert code == 2 and said in " ".join(output.split()), output
    assert [path.name for path in (tmp_path / "start").iterdir()] == ["mine.txt"]
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert colonnade("new", "federation", tmp_path / "empty")[0] == 0


def test_it_writes_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one/start", "two/start"):
        assert colonnade("new", "federation", tmp_path / name)[0] == 0
    for path in (tmp_path / "one" / "start").glob("*.[cy]*"):
        assert path.read_text() == (tmp_path / "two" / "start" / path.name).read_text()
