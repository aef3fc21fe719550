"""Performers of simulations: this process, or worker processes that end with it.

A worker is `python -m colonnade.search.workers`: it reads tasks and writes results, as lines.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any, Protocol, TextIO, TypeVar

from colonnade.common.errors import ColonnadeError, EnvironmentFault, InputError
from colonnade.common.run.files import keep_private
from colonnade.common.run.python_child import child_environment, python_module
from colonnade.search.references import ReferenceTask, fit_reference
from colonnade.search.simulated import Diverged, Listen, Result, Task, failure, perform

T = TypeVar("T")

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Performer(Protocol):
    """Performs one simulation at a time."""

    def perform(self, task: Task | ReferenceTask, listen: Listen) -> Result:
        """Simulates it to its end. Raises `Diverged`, and errors of the run."""

    def close(self) -> None:
        """Ends it at once."""


class Here:
    """Performs simulations in this process."""

    def perform(self, task: Task | ReferenceTask, listen: Listen) -> Result:
        return fit_reference(task, listen) if isinstance(task, ReferenceTask) else perform(task, listen)

    def close(self) -> None:
        """Does nothing."""


class Apart:
    """Performs simulations in another process, which is started again if it was killed.

    Both exchange lines of JSON: the task; for every evaluation its number, metrics and whether it is the last, answered
    by true or false; then the result or the failure. The worker ends when its input does, so that it does not outlive
    this process.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: subprocess.Popen[str] | None = None

    def perform(self, task: Task | ReferenceTask, listen: Listen) -> Result:
        """Simulates it to its end.

        Raises:
            ColonnadeError: as the run; `Diverged`.
            EnvironmentFault: the worker was killed.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        self._say(asdict(task))
        while True:
            heard = self._hear()
            if "evaluation" in heard:
                self._say(self._ask(listen, heard))
            elif "result" in heard:
                return Result(**heard["result"])
            else:
                kind = Diverged if heard["diverged"] else InputError
                raise kind(heard["failed"], hint=heard["hint"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ask(self, listen: Listen, heard: Mapping[str, Any]) -> bool:
        try:
            return listen(heard["evaluation"], heard["metrics"], heard["last"])
        except BaseException:
            self.close()  # the worker waits for a reply that will not come
            raise

    def _say(self, said: Any) -> None:
        assert self._process is not None and self._process.stdin is not None  # started with pipes
        try:
            self._process.stdin.write(json.dumps(said, default=str) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._gone() from None

    def _hear(self) -> Mapping[str, Any]:
        assert self._process is not None and self._process.stdout is not None  # started, since a task was sent
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise self._gone()
        found: Mapping[str, Any] = json.loads(line)
        return found

    def _gone(self) -> ColonnadeError:
        code = None if self._process is None else self._process.wait()
        self._process = None
        return EnvironmentFault(
            f"its process was killed (exit code {code})", hint="if memory is short, give a smaller --jobs"
        )

    def _start(self) -> subprocess.Popen[str]:
        environment = child_environment(**dict.fromkeys(_THREADS, str(self._threads)))
        command = python_module("colonnade.search.workers")
        return subprocess.Popen(  # noqa: S603  # our own command line
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,  # ^C on a terminal is for the caller, which ends its workers
        )  # fmt: skip


def share_out(
    tasks: Iterable[T], jobs: int, work: Callable[[T, Performer], object], stop: Callable[[], object] = lambda: None
) -> None:
    """Does the work of all tasks, `jobs` at a time, each with a performer of its own.

    A single job runs in this process, with a notebook's definitions. Of several, the first error ends all: `stop` is
    called, then the performers are killed.
    """
    if jobs == 1:
        for task in tasks:
            work(task, Here())
        return
    every = [Apart(threads_each(jobs)) for _ in range(jobs)]
    idle = queue.SimpleQueue[Performer]()

    def one(task: T) -> None:
        performer = idle.get()
        try:
            work(task, performer)
        finally:
            idle.put(performer)

    for performer in every:
        idle.put(performer)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for ended in as_completed([pool.submit(one, task) for task in tasks]):
                ended.result()
        finally:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
            for each in every:
                each.close()


def threads_each(jobs: int, wanted: int = 0) -> int:
    """Threads per simulation: one unless the server's section asks for more, limited by the available processors."""
    return max(1, min(wanted or 1, len(os.sched_getaffinity(0)) // jobs))


def main() -> None:
    """Works until the input ends, even in the middle of a simulation."""
    keep_private()
    said = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")  # written only here: prints go to the error stream
    os.dup2(2, 1)
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    while True:
        _write(said, _work(heard.get(), said, heard))


def _work(task: Mapping[str, Any], said: TextIO, heard: queue.SimpleQueue[Any]) -> dict[str, Any]:
    def listen(number: int, metrics: Mapping[str, float], last: bool) -> bool:
        _write(said, {"evaluation": number, "metrics": dict(metrics), "last": last})
        return bool(heard.get())

    try:
        return {"result": asdict(_performed(task, listen))}
    except Exception as error:  # noqa: BLE001  # no error may stop the next task
        reason, hint = failure(error)
        return {"failed": reason, "hint": hint, "diverged": isinstance(error, Diverged)}


def _performed(task: Mapping[str, Any], listen: Listen) -> Result:
    if "reference" in task:
        return fit_reference(ReferenceTask(**{**task, "columns": tuple(task["columns"])}), listen)
    return perform(Task(**{**task, "held": tuple(task["held"])}), listen)


def _listen(heard: queue.SimpleQueue[Any]) -> None:
    for line in sys.stdin:
        heard.put(json.loads(line))
    os._exit(0)


def _write(said: TextIO, content: dict[str, Any]) -> None:
    said.write(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
