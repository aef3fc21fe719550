"""The site: its tabs, and the length of its pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MOST_LINES, MOST_WORDS = 9000, 1500
GENERATED = ("configuration.md", "reference/*", "results/*")
"""Pages whose lines are not counted: those that are written from the code, and results."""
MODELS_OF_TABLES = (
    "encryption.md",
    "protocols/secureboost.md",
    "protocols/additive.md",
    "protocols/hetero_lr.md",
    "protocols/scorecard.md",
    "towers.md",
)
"""Likewise pages of trees, scores and towers, which came after the bound was set."""
LOOKED_UP = (
    "errors.md",
    "adversaries.md",
    "members_that_lie.md",
    "protocols/fedvs.md",
)
"""Pages of rows that are looked up, which may have more words: references."""


def pages(left_out: tuple[str, ...]) -> list[Path]:
    return [page for page in DOCS.rglob("*.md") if not any(page.relative_to(DOCS).match(name) for name in left_out)]


def words(text: str) -> int:
    """Words, also of code: marks of tables and headings are none."""
    return len([word for word in text.split() if re.search(r"\w", word)])


def test_every_name_that_is_left_out_is_of_a_page() -> None:
    for name in (*GENERATED, *MODELS_OF_TABLES, *LOOKED_UP):
        assert list(DOCS.glob(name)), name


def test_pages_have_no_more_lines_than_were_agreed() -> None:
    lines = {page: page.read_text().count("\n") for page in pages((*GENERATED, *MODELS_OF_TABLES))}
    assert sum(lines.values()) <= MOST_LINES, sorted(lines.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize(
    "page",
    pages((*GENERATED, *MODELS_OF_TABLES, *LOOKED_UP)),
    ids=lambda page: page.relative_to(DOCS).as_posix(),
)
def test_a_page_is_read_in_one_go(page: Path) -> None:
    assert words(page.read_text()) < MOST_WORDS


def tabs() -> list[str]:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"^  - ([^:\n]+)", navigation, re.M)


def test_the_site_has_six_tabs() -> None:
    assert tabs() == ["Start", "Data teams", "Researchers", "Operations", "Security", "Reference"]


def test_the_navigation_has_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"([\w/]+\.md)$", navigation, re.M)
    assert len(named) == len(set(named))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} <= set(named)


NAMED = re.compile(r"docs/[\w/]+\.md(?:, ([A-Z][\w ]+))?")
SOURCES = ("client", "colonnade", "common", "server", "lab", "benchmarks", "experiments", "deploy", "proto", "tests")


def test_pages_that_code_and_messages_name_exist_with_their_sections() -> None:
    lost, found = [], 0
    files = [file for folder in SOURCES for kind in ("py", "yaml", "yml", "proto") for file in walk(folder, kind)]
    for file in files:
        for named in NAMED.finditer(file.read_text()):
            page, found = ROOT / named[0].partition(",")[0], found + 1
            headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M) if page.is_file() else []
            named_there = any(head.startswith(named[1]) or named[1].startswith(head) for head in headings if named[1])
            if not page.is_file() or (named[1] and not named_there):
                lost.append((file.relative_to(ROOT).as_posix(), named[0]))
    assert found > 100 and not lost


def walk(folder: str, kind: str) -> list[Path]:
    """Files of a folder of the tree; colonnade/ has links to others, which are not followed."""
    return [file for file in (ROOT / folder).rglob(f"*.{kind}") if ".venv" not in file.parts]
