"""Names from tables and configurations that are markup, links, control characters or HTML stay text in every output."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.text import literal
from colonnade.reports.console import screen
from colonnade.reports.dashboard import Current
from tests.support.household import colonnade

NAMES = (
    "[bold]", "[/]", "[/bold]", "[link=http://x]y[/link]", "\x1b]8;;http://x\x1b\\z", "<script>alert(1)</script>",
    "](http://x)",
    "[y](http://x)", "a|b", "\u202eabc\u2066", "*b* _c_ `d`", "=cmd()", "http://www.x.org me@x.org",
    "&lt;b&gt;", "\\[x\\]",
)  # fmt: skip
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def written(folder: Path, align: str = "sorted") -> Path:
    """Two parties with 120 rows; classes, columns, words and files have the names."""
    rows = [f"r{number}" for number in range(120)]
    tables: dict[str, tuple[list[str], list[list[Any]]]] = {
        "server": (["id", "[/]label"], [[row, NAMES[number % len(NAMES)]] for number, row in enumerate(rows)]),
        "bank": (["id", *NAMES[:8]], [[row, *(number * k % 7 for k in range(8))] for number, row in enumerate(rows)]),
        "clinic": (
            ["id", *NAMES[8:]],
            [[row, *[NAMES[(number + k) % 9] for k in range(7)]] for number, row in enumerate(rows)],
        ),
    }
    for name, (head, lines) in tables.items():
        with (folder / f"{name} [bold][link=http:x]t[.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *lines])
    source = {name: {"source": "csv", "path": f"{name} [bold][link=http:x]t[.csv", "key": "id"} for name in tables}
    made = {
        "federation": {
            "id": "names", "protocol": {"name": "split", "embedding": 4}, "parties": ["bank", "clinic"],
            "classes": len(NAMES), "align": align, "batch": 16, "epochs": 2,
            "rows": {"test": 0.2, "validation": 0.2},
        },
        "server": {"labels": {**source["server"], "label": "[/]label"}},
        "parties": {name: {"data": source[name], "capture": {}} for name in ("bank", "clinic")},
    }  # fmt: skip
    path = folder / "names.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Consoles that print links and styles, as on a terminal."""
    for console in (screen.out, screen.err):
        monkeypatch.setattr(console, "_force_terminal", True)
        monkeypatch.setattr(console, "is_jupyter", False)
    yield


def printed(*argv: object, code: int = 0) -> str:
    found, output = colonnade(*argv)
    assert found == code, output
    assert "\x1b]8" not in output, output
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)  # Rich's own colours and cursor
    assert not INVISIBLE.search(shown.replace("\r", "")), repr(INVISIBLE.search(shown))
    return shown


def check_files(folder: Path) -> None:
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix in (".json", ".jsonl"):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            assert all(json.loads(line) is not None for line in lines if line)
        if path.suffix in (".html", ".md", ".txt", ".log", ".svg"):
            text = path.read_text()
            assert not INVISIBLE.search(text.replace("\r", "")), (path, INVISIBLE.search(text))
        if path.suffix in (".html", ".svg"):
            assert "<script>alert" not in text and 'href="http://x' not in text, path
        if path.suffix == ".md":
            assert not re.search(r"(?<!\\)\]\(http", text) and "<script" not in text and "://x" not in text, path


@pytest.mark.timeout(400)  # an inversion and an explanation
@pytest.mark.parametrize("how", ["simulate", "up"])
@pytest.mark.usefixtures("terminal")
def test_every_command(how: str, tmp_path: Path) -> None:
    file, run = written(tmp_path, "none" if how == "simulate" else "sorted"), tmp_path / "run"
    printed("check", file)
    printed(how, file, "--out", run)
    printed("report", run)
    printed("card", run)
    printed("ledger", run / "parties" / "bank")
    if how == "simulate":
        printed("explain", run)
        for kind in ("labels", "inversion"):
            printed("attack", run, "--kind", kind)
        (tmp_path / "ids.csv").write_text("id\nr1\nr2\n")
        printed("predict", run, "--ids", tmp_path / "ids.csv", "--out", tmp_path / "out.csv")
        (line, *_) = csv.reader((tmp_path / "out.csv").open(newline=""))
        assert {name.removeprefix("p_") for name in line[2:]} == set(NAMES)
    (run / "live.html").write_bytes(Current(run).page())  # the dashboard's
    check_files(run)


@pytest.mark.usefixtures("terminal")
def test_errors_quote_them_as_text(tmp_path: Path) -> None:
    file = written(tmp_path)
    for key, value in (("server.labels.label", "'[/x]'"), ("parties.bank.data.drop", "['[link=http://x]no[/link]']"),
                       ("server.labels.path", "[/bold][red].csv"), ("federation.protocol.name", "[/]")):  # fmt: skip
        said = printed("simulate", file, "--out", tmp_path / "no", "--set", f"{key}={value}", code=2)
        assert value.strip("[']") in said.replace("\n", ""), said


@pytest.mark.parametrize("name", [*NAMES, "one\ntwo", "# x", "- y", "www.x.org", "~~z~~", "![a](b)"])
def test_markdown_reads_back_as_the_text(name: str) -> None:
    markdown = pytest.importorskip("markdown")
    page = markdown.markdown(f"| head |\n| --- |\n| {literal(name)} |\n", extensions=["tables"])
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td)\b)", page), page
