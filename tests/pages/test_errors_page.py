"""docs/errors.md quotes the code's messages: nearly every letter is in the sources, and the search finds their keys."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from colonnade.common.parsing.reference import sections
from tests.support.rooms import CODE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text()
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.M)
LEAST = 8  # minimum letters of a meaningful text
VALUE = re.compile(
    r"'[^']*'|\S*[\d/…]\S*|\S+\.\S+"
)  # names in quotes, numbers, paths, hosts, keys: no source has these
STRANGE = 0.34  # share of the other letters that may be values: names without quotes, messages of an operating system


def pieces(text: ast.Constant | ast.JoinedStr) -> list[str]:
    """Literal pieces of a text, in order; values are inserted between them."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


@cache
def texts() -> tuple[tuple[str, ...], ...]:
    """The pieces of every text of the code that raises."""
    found = set()
    for package in CODE:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant | ast.JoinedStr):
                    found.add(tuple(piece for piece in pieces(node) if piece))
    return tuple(parts for parts in found if sum(map(len, parts)) >= LEAST and "\n" not in "".join(parts))


def strange(quotation: str) -> float:
    """The share of a quotation's words, by letters, that no text of the code has there."""
    ours = set()
    for parts in (parts for parts in texts() if all(part in quotation for part in parts)):
        if match := re.search(".*?".join(f"({re.escape(part)})" for part in parts), quotation):
            for group in range(1, len(parts) + 1):
                ours.update(range(*match.span(group)))
    values = {place for value in VALUE.finditer(quotation) for place in range(*value.span())}
    letters = {place for place, letter in enumerate(quotation) if letter.isalpha()} - values
    return len(letters - ours) / len(letters)


def test_there_are_enough_of_them() -> None:
    assert len(QUOTED) >= 25 and len(set(QUOTED)) == len(QUOTED)


def test_the_code_still_has_every_message() -> None:
    assert not [quotation for quotation in QUOTED if strange(quotation) > STRANGE]


def test_another_wording_would_be_noticed() -> None:
    turned = [" ".join(reversed(quotation.split(" "))) for quotation in QUOTED[::5]]
    assert not [wording for wording in turned if strange(wording) <= STRANGE]


# Errors about members that break the agreement: each has a row.

MEMBERS = ("client/dialling", "client/member/pin.py", "client/transcript", "common/conversation/relay.py")
TOLD = ("common/crypto/sealing.py", "common/crypto/sealing.py")
ASSEMBLED = 3  # a text of fewer words is part of another


def nodes(places: tuple[str, ...]) -> Iterator[ast.AST]:
    for place in places:
        for path in [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py")):
            yield from ast.walk(ast.parse(path.read_text()))


def accused() -> set[str]:
    """Breaches of the server, as `Kind.field`, where the code names them outright."""
    found = set()
    for node in nodes(MEMBERS):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ContractError":
            party, kind, field = node.args[:3]
            if ast.unparse(party) == "SERVER" and isinstance(kind, ast.Constant) and isinstance(field, ast.Constant):
                found.add(f"{kind.value}.{field.value}".rstrip("."))
    return found


def findings() -> set[tuple[str, ...]]:
    """The texts of findings, in pieces: those given to TranscriptError, or assigned to `text` before."""
    found = set()
    for node in nodes((*MEMBERS[1:], *TOLD)):
        text: ast.AST | None = None
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "text":
            text = node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "TranscriptError":
            text = node.args[0]
        if isinstance(text, ast.JoinedStr) and len(" ".join(pieces(text)).split()) > ASSEMBLED:
            found.add(tuple(pieces(text)))
    return found


def in_a_row(parts: tuple[str, ...]) -> bool:
    text = re.compile(".*".join(re.escape(part.strip()) for part in parts if part.strip()))
    return any(text.search(quotation) for quotation in QUOTED)


def test_every_breach_of_the_server_has_a_row() -> None:
    assert len(accused()) > 6
    assert not {what for what in accused() if not any(f"server sent {what}:" in row for row in QUOTED)}


def test_every_finding_of_a_transcript_has_a_row() -> None:
    assert len(findings()) > 7
    assert not {parts for parts in findings() if not in_a_row(parts)}
    assert not in_a_row(("round ", ": ", " was sold another "))


# The last column names keys, and the search of the site finds each.

KEY = re.compile(r"\[`([\w.]+)`\]\((configuration\.md#[\w-]+)\)")
QUOTATION = re.compile(r"^\| `+ ?(.+?) ?`+ \|?")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]
WORDS = re.compile(yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("separator: ")[2].partition("\n")[0]))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the search knows of pages and sections, by their address; docstrings are not needed, and left out."""
    mkdocs = pytest.importorskip("mkdocs.config")
    build = pytest.importorskip("mkdocs.commands.build")
    site = tmp_path_factory.mktemp("site")
    config = mkdocs.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), plugins=["search"], strict=False)
    build.build(config)
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    return {part["location"]: html.unescape(f"{part['title']} {part['text']}") for part in found}


@pytest.mark.slow
def test_the_search_finds_every_message_and_the_key_that_it_is_about(index: dict[str, str]) -> None:
    assert len(ROWS) > 190
    for number, row in enumerate(ROWS):
        found = WORDS.split(index[f"errors.html#m{number}"])
        assert {word for word in WORDS.split(QUOTATION.findall(row)[0]) if word} <= set(found), row
        for key, link in KEY.findall(row.rpartition(" | ")[2]):
            assert key.rpartition(".")[2] in WORDS.split(index[link.replace(".md", ".html")]), (key, link)


def test_every_row_has_a_place_for_its_key_and_most_have_one() -> None:
    cells = [row.strip("|").split(" | ") for row in ROWS]
    assert not [row for row in cells if len(row) != 4]
    with_keys = [row for row in cells if KEY.search(row[3])]
    assert len(with_keys) > 0.65 * len(cells)
    there = {f"{section.path}.{key.name}".lstrip(".") for section in sections() for key in section.keys}
    there |= {section.path for section in sections()}
    assert not {key for row in with_keys for key, _ in KEY.findall(row[3])} - there
