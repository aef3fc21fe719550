"""Members that `up` starts: restarts, threads, and which one is blamed or said to have left when a run fails."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest
import torch

from colonnade.cli.run.up import show
from colonnade.common.config.members import LaunchConfig
from colonnade.common.run.device import torch_threads
from colonnade.launcher import federation
from colonnade.launcher.federation import Launch, LaunchOptions, Restarts
from colonnade.launcher.processes import Processes, thread_share
from colonnade.reports.console.screen import Screen
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


def test_the_pause_doubles_until_no_restart_is_left() -> None:
    now = 0.0
    restarts = Restarts(LaunchConfig(restarts=3, backoff=0.5), lambda: now)
    for pause in (0.5, 1.0, 2.0):
        assert restarts.hopeful("ada", -9) and restarts.noticed("ada") and not restarts.noticed("ada")
        now += pause - 0.01
        assert restarts.hopeful("ada", -9) and not restarts.due("ada")
        now += 0.02
        assert restarts.due("ada")
    assert not restarts.hopeful("ada", -9)
    assert restarts.hopeful("bob", -9)


def test_a_member_that_ended_by_itself_is_not_restarted() -> None:
    restarts = Restarts(LaunchConfig())
    assert not restarts.hopeful("ada", 0) and not restarts.hopeful("ada", 3) and restarts.hopeful("ada", -15)


def test_no_restarts_are_none() -> None:
    assert not Restarts(LaunchConfig(restarts=0)).hopeful("ada", -9)


def launch(folder: Path) -> tuple[Launch, io.StringIO]:
    text = io.StringIO()
    options = LaunchOptions(screen=Screen(file=text, width=200))
    made = Launch(
        config({"name": "split", "embedding": 8}), folder, folder, folder, 0.0, options=options, resumed=False
    )
    return made, text


def left(party: str) -> dict[str, str]:
    return {"kind": "leave", "party": party, "reason": f"{party} was lost: the connection was closed"}


def test_nobody_is_said_to_be_lost_before_the_end(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    for party in ("party1", "party2"):
        made.show(left(party))
    assert not text.getvalue()
    made.show_left()  # of a run in which nobody has failed
    assert text.getvalue() == "".join(
        f"{party}: was lost: the connection was closed\n" for party in ("party1", "party2")
    )


def test_who_was_ended_because_another_has_failed_is_not_said_to_be_lost(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    made.sent_away.add("party2")
    for party in ("party1", "party2", "party3"):
        made.show(left(party))
    made.show_left()
    assert text.getvalue() == "".join(
        f"{party}: was lost: the connection was closed\n" for party in ("party1", "party3")
    )


def test_who_comes_back_is_said_to_have_been_away_first(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    made.show(left("party1"))
    made.show({"kind": "join", "party": "party2", "of": 3, "joined": 1})
    assert "was lost" not in text.getvalue()
    made.show({"kind": "rejoin", "party": "party1", "of": 3, "joined": 2, "round": 4, "seconds": 1.0})
    assert text.getvalue().index("was lost") < text.getvalue().index("is back")


def test_a_fork_server_that_still_imports_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "_listen", lambda _self, _output: None)  # it never says that it is ready
    processes, killed = Processes(), []
    end = processes.fork_server.kill
    monkeypatch.setattr(processes.fork_server, "kill", lambda: (killed.append(True), end()))
    processes.close()
    assert killed and processes.fork_server.returncode is not None


@pytest.mark.parametrize(("cores", "processes", "threads"), [(2, 4, 1), (16, 4, 4), (None, 1, 1)])
def test_processors_are_shared(
    cores: int | None, processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert thread_share(processes) == threads


def test_threads_are_limited_during_a_prediction_alone() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    with torch_threads(0):
        assert torch.get_num_threads() == before
