"""Pauses and crashes of a real process, as its `chaos` section configures them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from colonnade.common.config.chaos import Pause
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.runtime.durable import write_durably


class RealIncidents:
    """Signals to this process. Each happens once in a run, even if its round is repeated after a restart."""

    def __init__(self, record: Path) -> None:
        self._record = record

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        """Sends SIGSTOP now; a separate process sends SIGCONT later."""
        if self._first(f"pause@{pause.round}"):
            chaos.report("paused", round=pause.round, seconds=pause.seconds)
            wake = f"sleep {pause.seconds}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", wake], start_new_session=True)  # noqa: S603
            os.kill(os.getpid(), signal.SIGSTOP)

    def crash(self, chaos: Chaos, round: int) -> None:
        if self._first(f"crash@{round}"):
            chaos.report("crashed", round=round)
            os.kill(os.getpid(), signal.SIGKILL)

    def _first(self, what: str) -> bool:
        happened = json.loads(self._record.read_text(encoding="utf-8")) if self._record.exists() else []
        if what in happened:
            return False
        write_durably(self._record, json.dumps([*happened, what]).encode())
        return True
