"""The members' processes: restarted with the same command whenever they end, as by a service manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.runs import ROOT

BACKOFF = 1.0  # seconds between an end and the next start


@dataclass
class Life:
    """One process of a member.

    Args:
        begun: seconds since 1970.
        ended: the same; 0 while it runs.
        ordered: True if the soak ended it by a signal.
    """

    member: str
    pid: int
    begun: float
    ended: float = 0.0
    code: int | None = None
    ordered: bool = False


@dataclass
class Member:
    """A member: its command, its folder, its log, and its processes so far."""

    name: str
    argv: list[str]
    folder: Path
    log: Path
    lives: list[Life] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    held: float = 0.0  # earliest start; infinite: never

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def watched(self) -> psutil.Process | None:
        try:
            return psutil.Process(self.process.pid) if self.process is not None and self.alive else None
        except psutil.NoSuchProcess:
            return None


class Household:
    """Starts and restarts members, and keeps a record. A context manager."""

    def __init__(self, members: dict[str, Member], scratch: Path) -> None:
        self.members = members
        self._environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "COLONNADE_LOG": "info", "TMPDIR": str(scratch),
        }  # fmt: skip
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Household:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._keeper.join()
        for member in self.members.values():
            if member.process is not None and member.alive:
                member.process.send_signal(signal.SIGCONT)
                member.process.kill()
                member.process.wait()

    def end(self, names: tuple[str, ...], number: int, seconds: float) -> None:
        """Ends members by a signal, and restarts them after `seconds` (infinite: on `begin`)."""
        with self._lock:
            for name in names:
                member = self.members[name]
                member.held = time.time() + seconds
                if member.process is not None and member.alive:
                    member.lives[-1].ordered = True
                    member.process.send_signal(number)

    def begin(self) -> None:
        with self._lock:
            for member in self.members.values():
                member.held = 0.0

    def signal(self, name: str, number: int) -> None:
        with self._lock:
            member = self.members[name]
            if member.process is not None and member.alive:
                member.process.send_signal(number)

    def await_ends(self, seconds: float) -> list[str]:
        """Waits until all have ended; returns the names of those that did not."""
        until = time.monotonic() + seconds
        while (running := [name for name, one in self.members.items() if one.alive]) and time.monotonic() < until:
            time.sleep(0.1)
        return running

    def lives(self) -> list[Life]:
        with self._lock:
            return [life for member in self.members.values() for life in member.lives]

    def _keep(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                for member in self.members.values():
                    self._look(member)

    def _look(self, member: Member) -> None:
        now = time.time()
        if member.process is not None and not member.alive and not member.lives[-1].ended:
            life = member.lives[-1]
            life.ended, life.code = now, member.process.returncode
            done = life.code == 0
            member.held = float("inf") if done else max(member.held, now + BACKOFF)
        if not member.alive and now >= member.held:
            with member.log.open("ab") as words:
                words.write(f"--- started at {now:.1f}\n".encode())
                member.process = subprocess.Popen(
                    [sys.executable, "-m", "colonnade", *member.argv],
                    cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                )  # fmt: skip
            member.lives.append(Life(member.name, member.process.pid, now))
