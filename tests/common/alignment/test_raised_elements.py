"""Elements that a member has raised before, in a file that other processes write as well; the seed of a raising."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from colonnade.common.alignment import exponent
from colonnade.common.alignment.exponent import RaisedElements
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import Seed, about
from colonnade.common.alignment.psi_ring import PsiRing
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
    path, lay_down = tmp_path / "raised", exponent.lay_down
    first, second = filled(path, b"a"), filled(path, b"b")

    def interrupted(*more: object) -> None:
        monkeypatch.setattr(exponent, "lay_down", lay_down)
        second.save()
        lay_down(*more)  # type: ignore[arg-type]

    monkeypatch.setattr(exponent, "lay_down", interrupted)
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

    monkeypatch.setattr(exponent, step, full)
    with pytest.raises(EnvironmentFault, match="raised cannot be written: No space left on device"):
        known.save()
    assert not list(tmp_path.iterdir())


def begun(path: Path, *keys: bytes, secret: bytes = b"secret") -> None:
    """A process that raises each of these keys in a chunk of its own, and is killed."""
    if not (child := os.fork()):
        known = RaisedElements(path, secret)
        for key in keys:
            known.get(b"k", [key], lambda _new, key=key: key * 32)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def never(_new: object) -> bytes:
    raise AssertionError("it is known")


def test_what_a_killed_process_had_raised_is_not_raised_again(tmp_path: Path) -> None:
    path = tmp_path / "raised"
    filled(path, b"a").save()
    begun(path, b"b", b"c")
    (journal,) = [file for file in tmp_path.iterdir() if file != path]
    assert journal.stat().st_mode & 0o777 == 0o600
    begun(path, b"d")
    known = RaisedElements(path, b"secret")
    assert known.get(b"k", [b"d", b"b", b"c", b"a"], never) == b"d" * 32 + b"b" * 32 + b"c" * 32 + b"a" * 32
    assert known.raised == 0 and list(tmp_path.iterdir()) == [path]
    known.save()
    assert path.stat().st_size == 4 * 64 + 32  # each once


@pytest.mark.parametrize("secret", [b"secret", b"another"])
@pytest.mark.parametrize("spoilt", [0, 3, 12, 60, 103, 104, 107, 150])
def test_a_spoilt_journal_gives_no_wrong_element(spoilt: int, secret: bytes, tmp_path: Path) -> None:
    """Every chunk is 8 + 64 + 32 bytes: those before the altered one are used, if they are of this secret."""
    path = tmp_path / "raised"
    begun(path, b"a", b"b", secret=secret)
    (journal,) = tmp_path.iterdir()
    content = bytearray(journal.read_bytes())
    content[spoilt] ^= 1
    journal.write_bytes(content)
    known = RaisedElements(path, b"secret")
    got = known.get(b"k", [b"a", b"b"], lambda new: b"".join(key * 32 for key in new))
    assert got == b"a" * 32 + b"b" * 32
    assert known.raised == (2 if secret != b"secret" or spoilt < 104 else 1)


def test_a_journal_that_ends_early_is_used_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "raised"
    begun(path, b"a", b"b")
    (journal,) = tmp_path.iterdir()
    for size in (207, 110, 103, 5, 0):
        os.truncate(journal, size)
        copied = tmp_path / f"of{size}"
        copied.mkdir()
        shutil.copy(journal, copied / journal.name)
        known = RaisedElements(copied / "raised", b"secret")
        known.get(b"k", [b"a", b"b"], lambda new: b"".join(key * 32 for key in new))
        assert known.raised == (1 if size > 103 else 2)


def test_the_journal_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "raised"
    living = filled(path, b"a")
    other = filled(path, b"b")
    other.save()
    living.save()
    assert RaisedElements(path, b"secret").get(b"k", [b"a"], never) == b"a" * 32


def test_a_disk_that_takes_no_journal_stops_no_alignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    known = filled(tmp_path / "raised", b"a")
    monkeypatch.setattr(exponent, "mkstemp", full)
    known = RaisedElements(tmp_path / "raised", b"secret")
    assert known.get(b"k", [b"c"], lambda _new: b"c" * 32) == b"c" * 32
    with pytest.raises(EnvironmentFault, match="raised cannot be written: No space left on device"):
        known.save()


@pytest.mark.parametrize("kept", [True, False], ids=["disk", "memory"])
def test_it_draws_alike_until_it_is_forgotten(tmp_path: Path, kept: bool) -> None:
    path = tmp_path / "once" / "seed" if kept else None
    seed = Seed(path)
    draw = seed.draw(b"x")
    first = [draw(32), draw(100)]
    assert first[0] != first[1][:32]
    draw = (Seed(path) if kept else seed).draw(b"x")
    assert [draw(32), draw(100)] == first
    assert seed.draw(b"y")(32) != first[0]
    seed.forget()
    assert path is None or not path.exists()
    assert seed.draw(b"x")(32) != first[0]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    Seed(tmp_path / "seed").draw(b"x")
    assert (tmp_path / "seed").stat().st_mode & 0o777 == 0o600


def test_a_seed_that_was_cut_short_is_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "seed").write_bytes(b"short")
    assert Seed(tmp_path / "seed").draw(b"x")(8) == Seed(tmp_path / "seed").draw(b"x")(8)
    assert len((tmp_path / "seed").read_bytes()) == 32


def test_a_seed_that_the_disk_does_not_take_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        Seed(tmp_path / "file" / "seed").draw(b"x")


def test_other_sizes_keys_or_runs_have_other_secrets() -> None:
    seed, keys = Seed(), RowKeys((b"a", b"b"))
    variants = [
        about(b"tag", PsiRing((2, 2), 5), keys),
        about(b"tag", PsiRing((2, 3), 5), keys),
        about(b"tag", PsiRing((2, 2), 5), RowKeys((b"b", b"a"))),
        about(b"gat", PsiRing((2, 2), 5), keys),
    ]
    assert len({seed.draw(variant)(32) for variant in variants}) == len(variants)
