"""Every protocol is in every list of protocols, and has a page that the lists link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colonnade.common.contracts.registry import CONTRACTS

ROOT = Path(__file__).parents[2]
LISTS = {
    "docs/protocols/index.md": r"^\| \[`(\w+)`\]\(\1\.md\) \|",
    "mkdocs.yml": r"^ +- (\w+): protocols/\1\.md$",
}


@pytest.mark.parametrize("place", LISTS)
def test_a_list_has_every_protocol_once(place: str) -> None:
    found = re.findall(LISTS[place], (ROOT / place).read_text(), re.M)
    assert sorted(found) == sorted(CONTRACTS)


def test_every_protocol_has_a_page_under_its_name() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "protocols").glob("*.md")} - {"index"}
    assert pages == set(CONTRACTS)
    for name in CONTRACTS:
        assert f"`{name}`" in (ROOT / "docs" / "protocols" / f"{name}.md").read_text().partition("\n")[0]
