"""Another user of the same machine cannot read a run, and a killed launcher's keys are removed.

Bounds: no cell.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from colonnade.common.crypto.pki import files
from colonnade.common.errors import InputError
from colonnade.common.run.files import VARIABLE, keep_private, narrow
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.scratch import remove_stale, scratch
from tests.support import warm
from tests.support.tables import table_tree, write_tables

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HELD = """
import sys
from colonnade.launcher.scratch import scratch
with scratch() as folder: print(folder, flush=True); sys.stdin.read()
"""


def colonnade(folder: Path, *words: object) -> subprocess.Popen[str]:
    """A command of a user with a umask of 0."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
    return warm.start(*words, cwd=folder, env=environment, umask=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def open_to_others(folder: Path) -> list[str]:
    paths = (folder, *folder.rglob("*"))
    return [f"{path} {path.lstat().st_mode:o}" for path in paths if path.lstat().st_mode & 0o077]


@pytest.mark.processes
def test_nothing_of_a_run_can_be_read_by_others(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ids = write_tables(tmp_path)
    made = table_tree(epochs=1, checkpoint={"rounds": 4}, align="psi")
    for name in made["parties"]:
        made["parties"][name] |= {"capture": {}}
    (tmp_path / "tables.yaml").write_text(yaml.safe_dump(made))
    (tmp_path / "ids.csv").write_text("\n".join(["who", *ids["party1"][:5]]) + "\n")
    commands = (
        ("up", "tables.yaml", "--out", "runs/one", "--predict", "ids.csv"),
        ("report", "runs/one"),
        ("card", "runs/one"),
    )
    for words in commands:
        process = colonnade(tmp_path, *words)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
    run = tmp_path / "runs" / "one"
    found = {path.name for path in run.rglob("*")}
    expected = {
        "summary.json", "events.jsonl", "capture.bin", "ledger.jsonl", "predictions.csv", "report.html", "card.md",
        "alignment.safetensors", "encoder.json", "server.log", "log.txt", "config.yaml", ".lock",
    }  # fmt: skip
    assert expected <= found, expected - found
    assert any(name.startswith("round-") for name in found)
    assert open_to_others(tmp_path / "runs") == []
    assert not list((tmp_path / "tmp").glob("colonnade-*"))


def test_a_run_that_goes_on_is_closed_to_others_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of nobody's run")
    outside.chmod(0o644)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("events.jsonl", "checkpoints/round-00000001.safetensors"):
        (run / name).touch()
        (run / name).chmod(0o664)
    (run / "link").symlink_to(outside)
    (run / "checkpoints").chmod(0o777)
    before = os.umask(0o077)
    with locked_folder(None, "", run):
        assert [path for path in open_to_others(run) if "link" not in path] == []
    os.umask(before)
    assert "they no longer can" in capfd.readouterr().err
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_an_empty_folder_that_is_given_to_a_run_is_closed_to_others(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir(mode=0o755)
    before = os.umask(0o077)
    with locked_folder(out, ""):
        assert stat.S_IMODE(out.stat().st_mode) == 0o700
    os.umask(before)
    assert out.is_dir()


def test_a_folder_that_users_share_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert narrow(tmp_path) == (0, 0) and stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_certificates_can_be_read_by_others_as_far_as_the_user_lets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for outside, mode in ((0o022, 0o644), (0o077, 0o600), (0o027, 0o640)):
        monkeypatch.setattr("colonnade.common.run.files._outside", None)
        os.umask(outside)
        keep_private()
        files.write(tmp_path / "cert.pem", b"public", overwrite=True)
        files.write(tmp_path / "key.pem", b"private", mode=files.PRIVATE, overwrite=True)
        assert stat.S_IMODE((tmp_path / "cert.pem").stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


def test_a_group_may_be_let_in_on_purpose_and_the_owner_cannot_be_shut_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "027")
    keep_private()
    (tmp_path / "file").touch()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    for wrong in ("777", "0o9", "-1", "private"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(InputError, match="expected a umask"):
            keep_private()


# Throw-away keys.


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(temporary: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    """Starts processes that lock a folder each."""
    started = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = warm.Popen(
            [sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_folders_of_killed_processes_are_removed_and_those_of_live_ones_are_kept(
    temporary: Path, holder: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    (dead, left), (living, held) = holder(), holder()
    for folder in (left, held):
        (folder / "members").mkdir()
        (folder / "members" / "key.pem").write_text("secret")
    dead.kill()
    dead.wait()
    assert left.is_dir()
    with scratch() as own:
        assert not left.exists() and (held / "members" / "key.pem").exists()
        assert sorted(temporary.glob("colonnade-*")) == sorted([own, held])
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert living.poll() is None and not own.exists()


def test_links_and_files_of_other_users_are_left_alone(temporary: Path) -> None:
    (treasure := temporary / "treasure").mkdir()
    (treasure / "file").write_text("x")
    (treasure / ".lock").touch()
    (temporary / "colonnade-link").symlink_to(treasure)
    (inside := temporary / "colonnade-inside").mkdir(mode=0o700)
    (inside / ".lock").symlink_to(treasure / ".lock")
    (wide := temporary / "colonnade-wide").mkdir()
    wide.chmod(0o777)
    (wide / ".lock").touch()
    (unlocked := temporary / "colonnade-unlocked").mkdir(mode=0o700)
    (stale := temporary / "colonnade-stale").mkdir(mode=0o700)
    (stale / ".lock").touch()
    (stale / "link").symlink_to(treasure)
    if os.geteuid() == 0:
        (other := temporary / "colonnade-other").mkdir(mode=0o700)
        (other / ".lock").touch()
        os.chown(other, 12345, 12345)
    remove_stale(temporary)
    assert (treasure / "file").exists() and (temporary / "colonnade-link").is_symlink()
    assert inside.exists() and wide.exists() and unlocked.exists() and not stale.exists()
    assert os.geteuid() != 0 or other.exists()


@pytest.mark.processes
def test_a_launcher_that_is_killed_leaves_no_keys_beyond_the_next_command(tmp_path: Path) -> None:
    (place := tmp_path / "tmp").mkdir()
    process = colonnade(tmp_path, "up", "--out", "run")
    deadline = time.monotonic() + 100
    while not list(place.glob("colonnade-*/members/*/key.pem")):  # made in another process, which does not log it
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(place.glob("colonnade-*/members/server/key.pem"))
    remove_stale(place)
    assert not list(place.glob("colonnade-*"))
