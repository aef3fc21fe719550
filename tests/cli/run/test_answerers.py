"""The processes that a prediction starts on this machine."""

from __future__ import annotations

import os

import pytest
import torch

from colonnade.common.run.device import torch_threads
from colonnade.launcher.processes import Processes, thread_share


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
