"""The processes of one run on this machine, started by the fork server."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.python_child import child_environment, python_module


class Processes:
    """A fork server and its children.

    The children are outside the terminal's process group: a Ctrl-C reaches them only through this process. If this
    process dies, the fork server's input ends and it kills its children.

    Args:
        answers: True for parties that predict with a trained model, which import less than training does.
    """

    def __init__(self, *, answers: bool = False) -> None:
        purpose = "answers" if answers else "training"
        self.fork_server = subprocess.Popen(  # noqa: S603
            python_module("colonnade.cli.fork_server", purpose),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=child_environment(OMP_NUM_THREADS="1"),
        )
        # Not a Queue: a Ctrl-C while Python code of a Queue acquires its lock would leave the lock held forever.
        self._reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        assert self.fork_server.stdout is not None and self.fork_server.stdin is not None  # both are pipes
        self._input: TextIO = self.fork_server.stdin  # type: ignore[assignment]
        self._ready = False
        threading.Thread(target=self._listen, args=(self.fork_server.stdout,), daemon=True).start()
        self.begun = time.time()
        self.codes: dict[str, int] = {}
        self.pids: dict[str, int] = {}

    def start(self, name: str, argv: list[str], log: Path, *, threads: int) -> None:
        self.codes.pop(name, None)  # of an earlier start
        self._ask(start=name, argv=argv, log=str(log), threads=threads)
        self.pids[name] = 0

    def signal(self, name: str, number: int) -> None:
        if name in self.running():
            self._ask(signal=name, number=number)

    def running(self) -> list[str]:
        return [name for name in self.pids if name not in self.codes]

    def wait(self, seconds: float) -> None:
        """Handles the fork server's reports; waits at most `seconds` for the first."""
        try:
            report = self._reports.get(timeout=seconds)
            while True:
                self._take(report)
                report = self._reports.get_nowait()
        except queue.Empty:
            pass

    def close(self) -> None:
        """Ends the fork server, and with it all remaining children."""
        self._input.close()
        if not self._ready:  # still importing: it has no child yet
            self.fork_server.kill()
        try:
            self.fork_server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.fork_server.kill()

    def _ask(self, **request: Any) -> None:
        try:
            self._input.write(json.dumps(request) + "\n")
            self._input.flush()
        except BrokenPipeError:
            raise EnvironmentFault("the fork server has ended", hint="see what it printed above") from None

    def _take(self, report: dict[str, Any]) -> None:
        if "started" in report:
            self.pids[report["started"]] = report["pid"]
        elif "exited" in report:
            self.codes[report["exited"]] = report["code"]
        elif "ended" in report:
            raise EnvironmentFault("the fork server has ended by itself", hint="is there enough memory?")

    def _listen(self, output: Any) -> None:
        for line in output:
            report = json.loads(line)
            self._ready = self._ready or "ready" in report
            self._reports.put(report)
        self._reports.put({"ended": True})


def thread_share(processes: int) -> int:
    """Processor threads for each of `processes` that compute at once: more threads would wait for each other."""
    return max(1, (os.cpu_count() or 1) // processes)


@contextmanager
def started(*, answers: bool = False) -> Iterator[Processes]:
    """A fork server, begun first so that both processes import torch at once."""
    processes = Processes(answers=answers)
    try:
        yield processes
    finally:
        processes.close()


def answering(wanted: bool) -> AbstractContextManager[Processes | None]:
    """A fork server for predictions; None if not wanted."""
    return started(answers=True) if wanted else nullcontext()


def last_words(log: Path, code: int) -> tuple[str, str]:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}", ""
    lines = log.read_text(errors="replace", encoding="utf-8").splitlines() if log.exists() else []
    for at, line in reversed(list(enumerate(lines))):
        if line.startswith("error: "):
            hint = lines[at + 1].strip() if len(lines) > at + 1 and lines[at + 1].startswith("  ") else ""
            return line.removeprefix("error: "), hint
    if code == EnvironmentFault.exit_code:  # it could not write why
        return f"the disk of {log.parent} is full", "make room on the disk"
    return f"ended with exit code {code}", "see its log"
