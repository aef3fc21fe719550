"""docs/adversaries.md names every scene in tests/adversaries, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_scene() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs/adversaries.md").read_text()))
    assert named == {path.name for path in (ROOT / "tests/adversaries").rglob("test_*.py")}
