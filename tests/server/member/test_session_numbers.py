"""Session numbers only grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.errors import EnvironmentFault
from colonnade.server.member.hub import SessionNumbers


def test_they_are_seconds_and_grow_within_one(tmp_path: Path) -> None:
    numbers = SessionNumbers(tmp_path, lambda: 1000.5)
    assert [numbers.after(0), numbers.after(0), numbers.after(1001), numbers.after(5000)] == [1000, 1001, 1002, 5001]


@pytest.mark.parametrize("clock", [10.0, 1000.0])
def test_a_restart_goes_on_although_the_clock_goes_back(tmp_path: Path, clock: float) -> None:
    assert SessionNumbers(tmp_path, lambda: 1000.0).after(0) == 1000
    assert SessionNumbers(tmp_path, lambda: clock).after(0) == 1001


@pytest.mark.parametrize("content", [None, b"", b"x", b"\xff"])
def test_a_lost_file_leaves_the_clock(tmp_path: Path, content: bytes | None) -> None:
    assert SessionNumbers(tmp_path, lambda: 1000.0).after(0) == 1000
    (tmp_path / "session").unlink()
    if content is not None:
        (tmp_path / "session").write_bytes(content)
    assert SessionNumbers(tmp_path, lambda: 1002.0).after(0) == 1002


def test_a_disk_that_refuses_it_begins_no_session(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="session cannot be written"):
        SessionNumbers(tmp_path / "missing").after(0)
