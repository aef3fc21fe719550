"""A party names a file that is no table, or one without anything to learn from; a file of ids has no header.

Bounds: no cell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.data.sources import load_features
from colonnade.common.errors import DataError, InputError
from colonnade.common.parsing.file import load
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.simulation.federation import Simulation
from tests.support.tables import table_tree, write_tables

_ALONE = PartyIndex(0, 1)
Change = Callable[[Path, dict[str, Any]], object]


def folder_in_its_place(table: Path, _data: dict[str, Any]) -> None:
    table.unlink()
    table.mkdir()


def dangling(table: Path, _data: dict[str, Any]) -> None:
    table.unlink()
    table.symlink_to("gone.csv")


def in_parquet(_table: Path, data: dict[str, Any]) -> None:
    data.update(source="parquet", key=data.pop("id"))


def empty_parquet(table: Path, data: dict[str, Any]) -> None:
    table.write_bytes(b"")
    in_parquet(table, data)


def folder_without_files(table: Path, data: dict[str, Any]) -> None:
    folder_in_its_place(table, data)
    in_parquet(table, data)


def unreadable(table: Path, _data: dict[str, Any]) -> None:
    table.chmod(0)


def written(content: str | bytes, **more: Any) -> Change:
    def change(table: Path, data: dict[str, Any]) -> None:
        table.write_bytes(content if isinstance(content, bytes) else content.encode())
        data.update(more)

    return change


def said(**more: Any) -> Change:
    return lambda _table, data: data.update(more)


WRONG: dict[str, tuple[Change, str]] = {
    "a folder": (folder_in_its_place, r"party1\.csv is a folder"),
    "a link to nothing": (dangling, r"party1\.csv is a link to gone\.csv, which is not there"),
    "a folder without files": (folder_without_files, r"party1\.csv is a folder without files"),
    "an unreadable file": (unreadable, r"party1\.csv cannot be read: Permission denied$"),
    "nothing": (written(""), r"party1\.csv is empty"),
    "nothing in parquet": (empty_parquet, r"party1\.csv is empty"),
    "another delimiter": (written("who\tx\na\t1\n"), r"line 1: the one column 'who\\tx'"),
    "a nameless column": (written("who,x,\na,1,\n"), r"column 3 of 3 has no name"),
    "a delimiter at the end": (written("who,x\na,1,\n"), r"line 2: 3 values for the 2 columns"),
    "UTF-16": (written("who,x\na,1\n".encode("utf-16")), r"is UTF-16, not UTF-8"),
    "cp1252": (written("who,x\nJörg,1\n".encode("cp1252")), r"line 2: byte 0xf6 is not UTF-8"),
    "UTF-8 that is said to be cp1252": (written("who,x\nJörg,1\n", encoding="cp1252"), r"is UTF-8, and its `encoding`"),
    "a workbook": (written(b"PK\x03\x04\x14\0\x06\xff"), r"is an Excel workbook or a zip file, and no CSV"),
    "gzip": (written(b"\x1f\x8b\x08\0"), r"is packed by gzip, and no CSV"),
    "no header": (written("Person 0001,1.5\nPerson 0002,2.5\n"), r"has no column 'who'"),
    "NUL bytes in words": (written("who,x\na,b\nc,d\0\n"), r"line 3, column 'x': a NUL byte"),
    "NUL bytes in keys": (written("who,x\na\0,b\nc,d\n"), r"line 2, column 'who': a NUL byte"),
    "a long text": (written(f"who,x\na,b\nc,{'d' * 300_000}\n"), r"line 3, column 'x': a cell of more than 4096"),
    "a text that is not asked for": (
        written(f"who,x,y\na,1,{'d' * 300_000}\nb,2,c\nc,oops,c\n", columns=["x"]),
        r"line 4, column 'x': 'oops' is no number",
    ),
    "a row of 9 MB": (written(f"who,x\na,b\nc,{'d' * 9_000_000}\n"), r"a row of more than 4 MB"),
    "no feature": (written("who\na\nb\n"), r"no column is left as a feature"),
    "no feature left": (said(drop=["c0", "c1", "c2"]), r"no column is left as a feature"),
    "no feature with a word": (
        written("who,x\n" + "".join(f"Person {n:04},\n" for n in range(60)), missing="zero", types={"x": "category"}),
        r"no column is left as a feature",
    ),
}


def _as_nobody(really: Callable[..., Any]) -> Callable[..., Any]:
    def opens(path: Path, *how: Any, **more: Any) -> Any:
        if path.exists() and not path.stat().st_mode & 0o444:
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *how, **more)

    return opens


@pytest.mark.parametrize("scene", WRONG)
@pytest.mark.usefixtures("no_garbage")
@pytest.mark.filterwarnings("error")  # as of coroutines that were not awaited
def test_a_refusal_names_the_files_present_and_the_remedy(
    scene: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, what = WRONG[scene]
    tree = table_tree(batch=4, epochs=1, keys={"seeded": True})
    write_tables(tmp_path, persons=60)
    change(tmp_path / "party1.csv", tree["parties"]["party1"]["data"])
    if scene == "an unreadable file":
        monkeypatch.setattr(Path, "open", _as_nobody(Path.open))  # root reads everything
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(tree))
    with pytest.raises(DataError, match=rf"^party1: .*{what}") as checked:
        check(file, ())
    with pytest.raises(DataError, match=rf"^party1: .*{what}"):
        Simulation(load(file), file.parent).run()
    assert checked.value.hint and len(str(checked.value)) < 400


READ = {
    "cp1252": ("who,x\nJörg,ü\nAnn,ö\n".encode("cp1252"), {"encoding": "cp1252"}),
    "UTF-16 with tabs": ("who\tx\nJörg\tü\nAnn\tö\n".encode("utf-16"), {"encoding": "utf-16", "delimiter": "tab"}),
    "a mark, quotes, line ends": ('\ufeff"who";"x"\r\n"Jörg";"ü"\r\nAnn;ö\r\n'.encode(), {"delimiter": ";"}),
    "a delimiter at the end": ("who,x,\nJörg,ü,\nAnn,ö,\n".encode(), {"drop": [""]}),
}


@pytest.mark.parametrize("scene", READ)
def test_files_of_other_programs_are_read_if_configured(scene: str, tmp_path: Path) -> None:
    content, more = READ[scene]
    (tmp_path / "party1.csv").write_bytes(content)
    tree = table_tree(batch=1, epochs=1)
    tree["parties"]["party1"]["data"].update(more)
    features = load_features(load(_written(tmp_path, tree)).parties["party1"].data, _ALONE, tmp_path)
    assert features.ids == ("Jörg", "Ann") and features.fields[0].words == ("ö", "ü")


@pytest.mark.parametrize(
    ("text", "like", "said"),
    [
        ("Person 0001\nPerson 0002\n", "who", "'Person 0001' is not known as the name"),
        ("ann\nbob\n", "who", "'ann' is not known as the name"),
        ("17\n18\n", "", "'17' is not known as the name"),
    ],
)
def test_a_file_of_ids_without_a_header_loses_none_in_silence(text: str, like: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text(text)
    with pytest.raises(DataError, match=said) as refused:
        PredictionIds(tmp_path / "ids.csv", like=like).count()
    assert "--key" in refused.value.hint
    first, second = text.split(maxsplit=1)[0], text.splitlines()[1]
    (tmp_path / "ids.csv").write_text(f"{like or 'id'}\n{text}")
    assert next(PredictionIds(tmp_path / "ids.csv", like=like).ids()).startswith(first)
    (tmp_path / "ids.csv").write_text(text)
    assert [*PredictionIds(tmp_path / "ids.csv", text.splitlines()[0], like).ids()] == [second]


def test_a_folder_in_place_of_ids_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        PredictionIds(tmp_path).count()


def _written(folder: Path, tree: dict[str, Any]) -> Path:
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    return folder / "federation.yaml"


def test_rows_that_will_not_be_common_are_not_counted_as_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = write_tables(tmp_path, persons=60, share=0.8)
    tree = table_tree(batch=4)
    check(_written(tmp_path, tree), ())
    common = len(set.intersection(*map(set, ids.values())))
    output = capsys.readouterr().out
    assert "party1: up to 48 rows" in output and f"{common} rows are common to all: " in output
    del tree["parties"]["party2"]
    check(_written(tmp_path, tree), ())
    assert "the number of rows common to all is known after alignment" in capsys.readouterr().out
    tree["federation"]["batch"] = common + 1
    tree["parties"] = table_tree()["parties"]
    with pytest.raises(InputError, match=f"a batch of {common + 1} rows is more than the"):
        check(_written(tmp_path, tree), ())
