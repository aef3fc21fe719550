"""The member that `up` blames for a failed run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from colonnade.cli.run.up import show
from colonnade.launcher import federation
from colonnade.launcher.federation import Launch, LaunchOptions
from tests.support.federation import config

REFUSED = "error: noisy-labels.safetensors was drawn for other settings\n  set the deviation that the run began with\n"


class Scripted:
    """Processes that end as given: by themselves when they are waited for, or by our signal."""

    def __init__(self, alone: dict[str, int], signalled: dict[str, int]) -> None:
        self._alone, self._signalled = alone, signalled
        self.codes: dict[str, int] = {}

    def start(self, *_: object, **__: object) -> None: ...

    def wait(self, _: float) -> None:
        self.codes.update(self._alone)

    def running(self) -> list[str]:
        return [name for name in {**self._alone, **self._signalled} if name not in self.codes]

    def signal(self, name: str, number: int) -> None:
        assert number == signal.SIGTERM
        self.codes[name] = self._signalled[name]


def run_with(folder: Path, processes: Scripted, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(federation, "HASTE", 0.0)
    settings = config({"name": "split"}, "federation.parties=2", "launch.restarts=0")
    (folder / "server.log").write_text(REFUSED)
    run = Launch(settings, folder, folder, folder, 0.0, options=LaunchOptions(secure=False), resumed=True)
    return show(run.go(processes))  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", [-signal.SIGTERM, 130])
def test_a_member_ended_by_us_before_it_listened_is_not_blamed(
    ended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_with(tmp_path, Scripted({"server": 2}, {"party1": ended, "party2": 130}), monkeypatch)
    output = "".join(capsys.readouterr())
    assert code == 2 and "drawn for other settings" in output and "killed" not in output


def test_a_member_killed_by_another_process_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_with(tmp_path, Scripted({"party1": -signal.SIGKILL}, {"server": 130, "party2": 130}), monkeypatch)
    output = "".join(capsys.readouterr())
    assert code == 1 and "party1" in output and "killed by SIGKILL" in output


def test_a_run_that_has_not_begun_leaves_only_the_files_present_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "HASTE", 0.0)
    (scratch := tmp_path / "scratch").mkdir()
    (out := tmp_path / "out").mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "data").mkdir()
    (out / "data" / "clients.csv").write_text("mine too")
    settings = config({"name": "split"}, "federation.parties=2", "launch.restarts=0")
    processes = Scripted({"server": 2}, {"party1": 130, "party2": 130})
    run = Launch(settings, tmp_path, out, scratch, 0.0, options=LaunchOptions(secure=False), resumed=False)
    assert show(run.go(processes)) == 2  # type: ignore[arg-type]
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == ["data", "data/clients.csv", "notes.txt"]
