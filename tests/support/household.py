"""The command line in this process: every member that it starts is a thread, and all members share one event loop.

gRPC over mutual TLS, folders and commands are the real ones: only the processes are missing, which cost seconds each. A
party with a crash in its `chaos` crashes here too: it ends at once and without a message, as of SIGKILL. Everything
about processes (a pause, a signal, a lock, the fork server) is tested with `start` of tests/cli/run/test_up.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import uvloop

from colonnade.cli import main as command_line
from colonnade.common.run.json_text import read_lines
from colonnade.reports.console import run_to_end, screen
from tests.support.patience import PATIENCE

# typer sets this variable while it reads a command line, and deletes it if it was not set: of two threads at once, the
# second finds nothing to delete. It is never deleted if it is set before.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")


def colonnade(*argv: object) -> tuple[int, str]:
    """`colonnade ARGV`: its exit code and its output."""
    printed, handlers = io.StringIO(), {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    command = patch.object(sys, "argv", ["colonnade", *map(str, argv)])
    with _in_this_process(), command, redirect_stdout(printed), redirect_stderr(printed):
        try:
            command_line.main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return code, printed.getvalue()


@contextmanager
def household(logs: Path) -> Iterator[Household]:
    """For members that a test starts one by one, as on machines of their own; their logs are in a folder."""
    with _in_this_process():
        members = Household(logs)
        try:
            yield members
        finally:
            members.close()


@contextmanager
def _in_this_process() -> Iterator[None]:
    with ExitStack() as changes:
        for name in (f"colonnade.launcher.{module}.Processes" for module in ("predictions", "processes")):
            changes.enter_context(patch(name, Household))
        for name in ("colonnade.cli.run.member.run_to_end", "colonnade.launcher.predictions.run_to_end"):
            changes.enter_context(patch(name, _run_to_end))
        changes.enter_context(
            patch("colonnade.client.member.sessions.os", SimpleNamespace(getpid=os.getpid, kill=_crash))
        )
        yield


class Household:
    """Stands in for the `Processes` of `up`, without a process."""

    def __init__(self, logs: Path = Path(), *, answers: bool = False) -> None:
        self._logs = logs
        self.loop = uvloop.new_event_loop()
        self._running = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._running.start()
        self._changed = threading.Condition()
        self.begun = time.time()
        self._members: dict[str, _Member] = {}
        self.codes: dict[str, int] = {}

    def start(self, name: str, argv: list[str], log: Path, *, threads: int) -> None:
        """Runs `colonnade ARGV`; its output goes to `log`. All members compute with this process's threads."""
        self.codes.pop(name, None)
        self._members[name] = _Member(self, name, argv, log)
        self._members[name].start()

    def begin(self, name: str, *argv: object) -> None:
        """The same with a log of its own."""
        self.start(name, list(map(str, argv)), self._logs / f"{name}.log", threads=1)

    def finish(self, name: str) -> tuple[int, str]:
        """Waits for a member; returns its exit code and its output."""
        deadline = time.monotonic() + PATIENCE
        while name in self.running():
            assert time.monotonic() < deadline
            self.wait(1.0)
        return self.codes[name], (self._logs / f"{name}.log").read_text()

    def address_of(self, name: str, out: Path, starts: int = 1) -> str:
        """Waits until a server, in its start of that number in its folder, listens."""
        deadline = time.monotonic() + PATIENCE
        while len(found := [e for e in read_lines(out / "events.jsonl") if e["kind"] == "listening"]) < starts:
            assert name in self.running() and time.monotonic() < deadline
            self.wait(1.0)
        return str(found[-1]["address"])

    def signal(self, name: str, number: int) -> None:
        """Ends a member that still runs, as SIGTERM does, whatever the signal."""
        if name in self.running():
            self._members[name].end()

    def running(self) -> list[str]:
        """The members that have not ended."""
        return [name for name in self._members if name not in self.codes]

    def wait(self, seconds: float) -> None:
        """Waits until a member has ended, at most that long; shorter waits only make tests faster."""
        with self._changed:
            self._changed.wait(min(seconds, 0.02))

    def ended(self, name: str, code: int) -> None:
        """Records the end of a member."""
        with self._changed:
            self.codes[name] = code
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all remaining members, and the loop."""
        deadline = time.monotonic() + PATIENCE
        for member in self._members.values():
            member.end()
            member.join(max(deadline - time.monotonic(), 0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._running.join()
        self.loop.close()


class _Member(threading.Thread):
    """One start of a member: its command runs here, and its coroutines run in the shared loop.

    Models are made from torch's own generator, which all threads share, and so in one loop, one after the other.
    """

    def __init__(self, household: Household, name: str, argv: list[str], log: Path) -> None:
        super().__init__(name=name, daemon=True)
        self._household, self._argv, self._log = household, argv, log
        self._body: asyncio.Task[None] | None = None
        self._dismissed = self._crashed = False

    def run(self) -> None:
        """The command, with its output in the log."""
        code = 1
        _WHO.set(self)
        with screen.out.capture() as said, screen.err.capture() as failed:  # of this thread alone
            try:
                command_line.app(self._argv)
            except SystemExit as ended:
                code = int(ended.code or 0)
            except Exception as error:  # noqa: BLE001  # as `main` does
                try:
                    screen.fail(error)
                except SystemExit as ended:
                    code = int(ended.code or 0)
        with self._log.open("a") as log:
            log.write(said.get() + failed.get())
        self._household.ended(self.name, -signal.SIGKILL if self._crashed else code)

    def end(self) -> None:
        """Cancels the running task, once."""
        self._household.loop.call_soon_threadsafe(self._cancel)

    def crash(self) -> None:
        """The same outside the loop, as if killed."""
        self._crashed = True
        self._cancel()

    def live(self, main: Coroutine[Any, Any, None]) -> None:
        """Replaces `run_to_end`."""

        async def body() -> None:
            self._body = asyncio.current_task()
            if self._dismissed:
                raise asyncio.CancelledError
            await main

        try:
            asyncio.run_coroutine_threadsafe(body(), self._household.loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            screen.err.print("interrupted", style="yellow")
            raise SystemExit(screen.INTERRUPTED) from None

    def _cancel(self) -> None:
        if not self._dismissed and self._body is not None:
            self._body.cancel()
        self._dismissed = True


_WHO: ContextVar[_Member | None] = ContextVar("who", default=None)  # tasks of a member inherit it


def _run_to_end(main: Coroutine[Any, Any, None]) -> None:
    if (member := _WHO.get()) is None:  # a command that a test runs, and no member
        run_to_end.run_to_end(main)
    else:
        member.live(main)


def _crash(_pid: int, number: int) -> None:
    assert number == signal.SIGKILL  # nothing else can be done to one member alone
    member = _WHO.get()
    assert member is not None
    member.crash()
    raise asyncio.CancelledError  # in the connection's reader: nothing more is read, and nothing sent
