from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packages import Packages


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    made = Packages(tmp_path / "packages", monkeypatch)
    yield made
    monkeypatch.undo()
    made.forget()
