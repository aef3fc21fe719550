"""docs/migration.md: its defaults and names are those of the code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/migration.md").read_text()


def table(heading: str) -> list[list[str]]:
    """Rows of the first table below a heading, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def defaults(key: str, schema: dict[str, Any], known: dict[str, Any]) -> list[Any]:
    """Defaults of a dotted key in every variant of a section that has it."""
    for reference in [schema.get("$ref"), *(part.get("$ref") for part in schema.get("allOf", ()))]:
        if reference:
            return defaults(key, known[reference.rpartition("/")[2]], known)
    word, _, rest = key.partition(".")
    found: list[Any] = []
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found += defaults(key, part, known)
    below = schema.get("additionalProperties") if word == "NAME" else schema.get("properties", {}).get(word)
    if isinstance(below, dict):
        found += defaults(rest, below, known) if rest else [below.get("default")]
    return found


@cache
def schema() -> dict[str, Any]:
    return Config.model_json_schema()


def of_config(key: str) -> set[Any]:
    found = defaults(key, schema(), schema()["$defs"])
    assert found, f"there is no key {key}"
    return set(found)


CHANGED = table("Defaults that changed")
NEW = table("New keys")


def test_changed_defaults_are_those_of_the_code() -> None:
    (adjacency, masked) = CHANGED
    assert of_config("federation.privacy.adjacency") == {adjacency[2].strip("`")} != {adjacency[1].strip("`")}
    fedvs = CONTRACTS["fedvs"].config.model_fields["masked_answers"].default
    assert str(fedvs).lower() == masked[2].strip("`") != masked[1].strip("`")


@pytest.mark.parametrize("row", NEW, ids=lambda row: row[0])
def test_a_new_key_is_there_with_its_default(row: list[str]) -> None:
    first, *others = re.findall(r"`([^`]+)`", row[0])
    section = first.rpartition(".")[0]
    keys = [first, *(name if "." in name else f"{section}.{name}" for name in others)]
    meant = [cell.strip("`") for cell in row[1].split(", ")]
    assert len(keys) == len(meant)
    for key, value in zip(keys, meant, strict=True):
        found = {str(one) for one in _plain(key)}
        assert found == {value} or (value == "none" and found <= {"None", "", "{}", "[]", "()"}), key


def _plain(key: str) -> list[Any]:
    return defaults(key, schema(), schema()["$defs"]) or pytest.fail(f"there is no key {key}")


def test_new_names_are_in_the_code_and_old_ones_are_not() -> None:
    rooms = [path for path in (ROOT / "colonnade").iterdir() if path.is_dir()]
    code = "\n".join(path.read_text() for room in rooms for path in room.resolve().rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", code, re.M))
    rows = table("Code")
    assert len(rows) > 10
    old, new = (
        {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row[place]) if name[0].isupper()}
        for place in (0, 1)
    )
    assert len(new) > 12 and new - {"Released"} <= classes
    assert not old & classes
