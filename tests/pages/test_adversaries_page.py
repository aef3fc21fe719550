"""docs/adversaries.md names every scene in tests/adversaries, and no other; each scene names the cells that it bounds.

The last line of a scene's docstring says which cells of the table in docs/members_that_lie.md its outcomes are bounded
by, as `Bounds: blinded sums (server, both); predictions (both).`, or `Bounds: no cell.`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.pages.test_threats_page import SECTION, table

ROOT = Path(__file__).parents[2]
SCENES = sorted((ROOT / "tests/adversaries").rglob("test_*.py"))
COLUMNS = ("server", "party", "both")
PAGE = (ROOT / "docs/adversaries.md").read_text()
OUTSIDE = (  # sections of the page on those who are no members, and on mistakes
    "Strangers, and holders of a certificate without a place in the roster",
    "Other users of the machine, and a member's own mistakes",
    "Misread privacy figures",
    "Tables in common formats",
)

Cell = tuple[str, str]
"""A promise and a column."""


def named(text: str) -> set[str]:
    return set(re.findall(r"`(?:\w+/)*(test_\w+\.py)(?:::\w+)?`", text))


def bounds(scene: Path) -> set[Cell] | None:
    """The cells that a scene names; none for `no cell`. None if its docstring does not end in such a line."""
    last = (ast.get_docstring(ast.parse(scene.read_text())) or "").splitlines()[-1:]
    said = re.fullmatch(r"Bounds: (?:no cell|[^;()]+ \([^()]+\)(?:; [^;()]+ \([^()]+\))*)\.", "".join(last))
    if said is None:
        return None
    found = re.findall(r"([^;()]+) \(([^()]+)\)", said[0].removeprefix("Bounds: "))
    return {(row.strip(), column) for row, columns in found for column in columns.split(", ")}


@cache
def cited() -> Mapping[Cell, frozenset[str]]:
    """The scenes that each cell of the table names."""
    names = {scene.name for scene in SCENES}
    rows = [[re.sub(r"^\[(.+)\]\(.+\)$", r"\1", row[0]), *row[1:]] for row in table("members_that_lie.md", SECTION)[1:]]
    return {
        (row[0], column): frozenset(named(cell) & names)
        for row in rows
        for column, cell in zip(COLUMNS, row[1:], strict=True)
    }


def differences(scenes: Iterable[Path]) -> list[str]:
    """Scenes without a line, cells that are none, and scenes and cells of which one does not name the other."""
    found = []
    for scene in scenes:
        said = bounds(scene)
        if said is None:
            found.append(f"{scene.name}: its docstring ends in no line on what it bounds")
            continue
        found += [f"{scene.name}: {cell} is no cell" for cell in said - cited().keys()]
        citing = {cell for cell, names in cited().items() if scene.name in names}
        found += [f"{scene.name}: {cell} does not cite it" for cell in (said & cited().keys()) - citing]
        found += [f"{scene.name}: {cell} cites it" for cell in citing - said]
    return found


def test_every_scene_has_a_row() -> None:
    assert set(re.findall(r"`(test_\w+\.py)`", PAGE)) == {scene.name for scene in SCENES}


def test_scenes_and_cells_of_the_table_name_each_other() -> None:
    assert differences(SCENES) == []


def test_a_scene_without_a_cell_is_of_no_member_that_lies() -> None:
    sections = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}
    outside = set().union(*(named(sections[head]) for head in OUTSIDE))
    assert {scene.name for scene in SCENES if bounds(scene) == set()} <= outside


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("A scene.", "ends in no line"),
        ("Bounds: predictions.", "ends in no line"),
        ("Bounds: weather (party).", "('weather', 'party') is no cell"),
        ("Bounds: predictions (stranger).", "('predictions', 'stranger') is no cell"),
        ("Bounds: predictions (party); transcripts (party).", "('transcripts', 'party') does not cite it"),
        ("Bounds: no cell.", "('predictions', 'party') cites it"),
    ],
)
def test_a_scene_that_says_otherwise_is_found(tmp_path: Path, line: str, said: str) -> None:
    scene = tmp_path / "test_false_outputs.py"
    scene.write_text(f'"""A scene.\n\n{line}\n"""\n')
    assert any(said in difference for difference in differences([scene]))
    scene.write_text('"""A scene.\n\nBounds: predictions (party).\n"""\n')
    assert differences([scene]) == []
