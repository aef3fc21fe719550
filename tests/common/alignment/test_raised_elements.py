"""Elements that a member has raised before, in a file that other processes may write as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colonnade.common.alignment.kept import raised
from colonnade.common.alignment.kept.raised import RaisedElements
from colonnade.common.errors import EnvironmentFault


def test_a_file_of_another_secret_or_with_a_changed_byte_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "raised"
    one = RaisedElements(path, b"secret")
    assert one.get(b"k", [b"a", b"b"], lambda new: b"".join(key * 32 for key in new)) == b"a" * 32 + b"b" * 32
    one.save()
    never = lambda _new: pytest.fail("it is known")  # noqa: E731
    assert RaisedElements(path, b"secret").get(b"k", [b"b", b"a"], never) == b"b" * 32 + b"a" * 32
    again = [RaisedElements(path, b"another")]
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    again.append(RaisedElements(path, b"secret"))
    for other in again:
        assert other.get(b"k", [b"a"], lambda new: b"x" * 32 * len(new)) == b"x" * 32


def test_what_was_not_used_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "raised"
    for used in ([b"a", b"b", b"c"], [b"b", b"d"]):
        known = RaisedElements(path, b"secret")
        known.get(b"k", used, lambda new: b"".join(key * 32 for key in new))
        known.save()
    last = RaisedElements(path, b"secret")
    last.get(b"k", [b"a", b"b", b"c", b"d"], lambda new: b"".join(key * 32 for key in new))
    assert last.raised == 2
    assert path.stat().st_size == 2 * 64 + 32


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    known = RaisedElements(tmp_path / "raised", b"secret")
    known.get(b"k", [b"a"], lambda _new: b"a" * 32)
    (tmp_path / "raised").mkdir()
    with pytest.raises(EnvironmentFault, match="raised cannot be written"):
        known.save()


def filled(path: Path, key: bytes) -> RaisedElements:
    """A member's map with one new element."""
    known = RaisedElements(path, b"secret")
    known.get(b"k", [key], lambda _new: key * 32)
    return known


def test_two_processes_that_write_at_once_leave_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins and ends while the first one is in the middle of its draft."""
    path, lay_down = tmp_path / "raised", raised.lay_down
    first, second = filled(path, b"a"), filled(path, b"b")

    def interrupted(*more: object) -> None:
        monkeypatch.setattr(raised, "lay_down", lay_down)
        second.save()
        lay_down(*more)  # type: ignore[arg-type]

    monkeypatch.setattr(raised, "lay_down", interrupted)
    first.save()
    kept = RaisedElements(path, b"secret")
    assert kept.get(b"k", [b"a"], lambda _new: pytest.fail("it is known")) == b"a" * 32
    assert [file.name for file in tmp_path.iterdir()] == ["raised"] and path.stat().st_mode & 0o777 == 0o600


def test_drafts_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("raised.partial", "raised.7.abc.partial")]
    living, foreign = tmp_path / "raised.8.abc.partial", tmp_path / "exponent.json.partial"
    for path in (*left, living, foreign):
        path.write_bytes(b"half")
    for path in (*left, foreign):
        os.utime(path, (1, 1))
    filled(tmp_path / "raised", b"a").save()
    assert {path.name for path in tmp_path.iterdir()} == {"raised", living.name, foreign.name}


@pytest.mark.parametrize("step", ["lay_down", "mkstemp"])
def test_a_disk_that_becomes_full_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    known = filled(tmp_path / "raised", b"a")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(raised, step, full)
    with pytest.raises(EnvironmentFault, match="raised cannot be written: No space left on device"):
        known.save()
    assert not list(tmp_path.iterdir())
