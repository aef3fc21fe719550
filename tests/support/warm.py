"""Processes of the command line without imports: `Popen` and `run` of subprocess, with a forked Python.

The first start in a pytest worker starts a server (tests/support/warm_server.py), which imports everything that the
fork server of `colonnade up` does, and forks a child for every later start. A child becomes `python -m MODULE ARGV` or
`python -c CODE ARGV` with the working directory, environment, descriptors, umask, session and process group that
subprocess would give it. If it starts a fork server of its own, or workers of a search, these are forked as well, from
spare children that have run nothing yet.

A child differs in two points: its tensors have one thread unless OMP_NUM_THREADS is set, and it does not wait for the
disk (`spare_the_disk`). A start with variables of the interpreter (PYTHONHASHSEED, LANG, ...) in its environment, or
with options that a fork cannot provide, is an ordinary one; with COLONNADE_TESTS_COLD=1 every start is.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests.support import warm_server
from tests.support.warm_server import ROOT, Request, arguments_of, close_ends, descriptors_of, request_of

COLONNADE = (sys.executable, "-m", "colonnade")
_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_")  # variables that are read before any Python runs


class Popen(subprocess.Popen[str]):
    """A process as subprocess starts it, forked from the server if possible.

    Args:
        words: the command. Any other than the Python of the tests with -m or -c is started normally.
        files: limits of open files, soft and hard; None inherits them.
        how: keywords of subprocess.Popen. Text is the default.
    """

    _report: socket.socket | None = None  # receives the pid, then the wait status

    def __init__(self, words: Sequence[object], *, files: tuple[int, int] | None = None, **how: Any) -> None:
        self._files = files
        super().__init__([str(word) for word in words], **{"text": True, **how})

    def _execute_child(self, *given: Any) -> None:
        asked = arguments_of(super()._execute_child, given)
        if not _can_be_forked(asked):
            if self._files:
                asked["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, self._files or (0, 0))
            super()._execute_child(*asked.values())
            return
        try:
            self._server = Server.running()
            self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._server.ask(request_of(asked, self._files), (*descriptors_of(asked), theirs.fileno()))
            if not (said := self._report.recv(16)):
                raise self._server.crash()
            self.pid, self._child_created = int(said), True
        finally:
            close_ends(self, asked)

    def _internal_poll(self, _deadstate: int | None = None, **more: Any) -> int | None:
        if self._report is None:
            return super()._internal_poll(_deadstate, **more)
        with self._waitpid_lock:
            if self.returncode is None:
                try:
                    pid, status = self._try_wait(os.WNOHANG)
                except RuntimeError:
                    if _deadstate is None:
                        raise
                    self.returncode = _deadstate  # collected, and not waited for
                    return self.returncode
                if pid == self.pid:
                    self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._report is None:
            return super()._try_wait(wait_flags)
        try:
            said = self._report.recv(16, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        if not said:
            raise self._server.crash()
        return self.pid, int(said)


def start(*argv: object, **how: Any) -> Popen:
    """Starts `colonnade ARGV`; keywords are those of Popen."""
    return Popen((*COLONNADE, *argv), **how)


def run(
    words: Sequence[object],
    *,
    timeout: float | None = None,
    check: bool = True,
    capture_output: bool = False,
    **how: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, as subprocess.run does."""
    if capture_output:
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(words, **how) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@contextmanager
def replace(*modules: types.ModuleType) -> Iterator[None]:
    """Forks the processes that these modules start by subprocess, within the context."""
    forking = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen, "run": run})
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "subprocess", forking))
        yield


class Server:
    """The server, seen from the tests."""

    preload = "all"  # or "nothing"
    only: Server | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this process
        # Without variables set by imports of the product in this process: the server is to set them by its own imports.
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, warm_server.__file__, str(theirs.fileno()), self.preload], pass_fds=[theirs.fileno()],
                env={**kept, **_interpreters(os.environ), "OMP_NUM_THREADS": "1"}, umask=0o077, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
            )  # fmt: skip
        atexit.register(self.close)

    @classmethod
    def running(cls) -> Server:
        """The server of this pytest worker."""
        with cls._lock:
            if cls.only is None:
                cls.only = Server()
            return cls.only

    def ask(self, request: Request, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            raise self.crash() from None

    def crash(self) -> RuntimeError:
        """The error to raise once it has ended; the next start has a new server."""
        with self._lock:
            if Server.only is self:
                Server.only = None
        self.close()
        self._said.seek(0)
        code, said = self._process.returncode, self._said.read().decode(errors="replace")
        return RuntimeError(f"the server that forks processes for tests ended with code {code}. It said:\n{said}")

    def close(self) -> None:
        """Ends it, and with it every remaining child."""
        self._requests.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _can_be_forked(asked: Request) -> bool:
    mine = [str(sys.executable), "-m"], [str(sys.executable), "-c"]
    begins = [word for word in asked["args"][:3] if word != "-P"][:2]
    special = any(asked[name] for name in ("preexec_fn", "pass_fds", "shell")) or asked["uid"] is not None
    if special or begins not in mine or os.environ.get("COLONNADE_TESTS_COLD"):
        return False
    return asked["env"] is None or _interpreters(asked["env"]) == _interpreters(os.environ)


def _interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_INTERPRETER) and k != "PYTHONPATH"}
