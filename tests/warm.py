"""Processes of the command line that import nothing: `Popen` and `run` of subprocess, whose Python is forked.

The first start in a pytest worker starts a server, which imports all that the fork server of `colonnade up` does, and
forks a child for every start from then on. A child becomes `python -m MODULE ARGV` or `python -c CODE ARGV` with the
working directory, environment, descriptors, umask, session and process group that subprocess would give it. Should it
start a fork server of its own, that one is forked as well, from a spare child that nothing has run in yet.

A child differs in this: its tensors have one thread unless OMP_NUM_THREADS says otherwise. A start whose environment
concerns the interpreter itself (PYTHONHASHSEED, LANG, ...) or that needs what a fork cannot do is an ordinary one;
with COLONNADE_TESTS_COLD=1 every start is.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import pkgutil
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
COLONNADE = (sys.executable, "-m", "colonnade")
_NURSERY = ["-m", "colonnade.cli.fork_server"]
_CHILDLESS = ("server", "client", "health")  # commands that never start a fork server
_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_")  # variables that are read before any Python runs
# Imported beyond what the fork server does, since most runs do.
_MORE = ("sklearn.datasets", "sklearn.metrics", "prometheus_client", "uvloop")
_NEVER = ("grpc", "pyarrow")  # their threads would be lost
_PR_SET_PDEATHSIG = 1
_LARGEST = 1 << 18  # bytes of a request

Request = dict[str, Any]


class Popen(subprocess.Popen[str]):
    """A process as subprocess starts it, forked from the server where that is possible.

    Args:
        words: the command. What is not the Python of the tests with -m or -c is started as ever.
        files: how many files it may open, soft and hard; None leaves what it inherits.
        how: keywords of subprocess.Popen. Text is the default.
    """

    _report: socket.socket | None = None  # says the pid, then the wait status

    def __init__(self, words: Sequence[object], *, files: tuple[int, int] | None = None, **how: Any) -> None:
        self._files = files
        super().__init__([str(word) for word in words], **{"text": True, **how})

    def _execute_child(self, *given: Any) -> None:
        asked = _bound(super()._execute_child, given)
        if not _can_be_forked(asked):
            if self._files:
                asked["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, self._files or (0, 0))
            super()._execute_child(*asked.values())
            return
        try:
            self._server = _Server.running()
            self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._server.ask(_request(asked, self._files), (*_descriptors(asked), theirs.fileno()))
            if not (said := self._report.recv(16)):
                raise self._server.crash()
            self.pid, self._child_created = int(said), True
        finally:
            _close_ends(self, asked)

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
                    self.returncode = _deadstate  # nobody asks: it is collected
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
    """Within it, processes that these modules start by subprocess are forked."""
    forking = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen, "run": run})
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "subprocess", forking))
        yield


class _Server:
    """The server, seen from the tests."""

    preload = "all"  # or "nothing"
    _only: _Server | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this process
        # Nothing that another import of the product has set in this process: what its import sets is to be seen there.
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), self.preload], pass_fds=[theirs.fileno()],
                env={**kept, **_interpreters(os.environ), "OMP_NUM_THREADS": "1"}, umask=0o077, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
            )  # fmt: skip
        atexit.register(self.close)

    @classmethod
    def running(cls) -> _Server:
        """The one of this pytest worker."""
        with cls._lock:
            if cls._only is None:
                cls._only = _Server()
            return cls._only

    def ask(self, request: Request, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            raise self.crash() from None

    def crash(self) -> RuntimeError:
        """What is raised once it has ended; the next start has a new one."""
        with self._lock:
            if _Server._only is self:
                _Server._only = None
        self.close()
        self._said.seek(0)
        code, said = self._process.returncode, self._said.read().decode(errors="replace")
        return RuntimeError(f"the server that forks processes for tests ended with code {code}. It said:\n{said}")

    def close(self) -> None:
        """Ends it, and with it every child that is left."""
        self._requests.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _bound(method: Any, given: Sequence[Any]) -> Request:
    """The arguments of Popen._execute_child by name: their order is CPython's own affair."""
    return inspect.signature(method).bind(*given).arguments


def _can_be_forked(asked: Request) -> bool:
    mine = [str(sys.executable), "-m"], [str(sys.executable), "-c"]
    special = any(asked[name] for name in ("preexec_fn", "pass_fds", "shell")) or asked["uid"] is not None
    if special or asked["args"][:2] not in mine or os.environ.get("COLONNADE_TESTS_COLD"):
        return False
    return asked["env"] is None or _interpreters(asked["env"]) == _interpreters(os.environ)


def _interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_INTERPRETER) and k != "PYTHONPATH"}


def _request(asked: Request, files: tuple[int, int] | None = None) -> Request:
    return {
        "argv": asked["args"][1:],
        "cwd": str(asked["cwd"] or Path.cwd()),
        "env": dict(os.environ if asked["env"] is None else asked["env"]),
        "umask": asked["umask"] if asked["umask"] >= 0 else _umask(),
        "session": asked["start_new_session"],
        "group": asked["process_group"],
        "files": files or resource.getrlimit(resource.RLIMIT_NOFILE),
    }


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _descriptors(asked: Request) -> list[int]:
    """The three that the child has; -1 stands for one that it inherits."""
    ends = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
    return [inherited if end == -1 else end for inherited, end in enumerate(ends)]


def _close_ends(process: Any, asked: Request) -> None:
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(asked[name] for name in names))


# The server, and the children that it forks.


def _main() -> None:
    del sys.path[0]  # of this file
    requests, before = socket.socket(fileno=int(sys.argv[1])), dict(os.environ)
    if sys.argv[2] == "all":
        _preload()
    made = {key: value for key, value in os.environ.items() if before.get(key) != value}  # by imports
    born = _serve(requests)
    if born is None:
        return
    request, descriptors = born
    if request["argv"][1] == "colonnade" and not set(_CHILDLESS) & set(request["argv"][2:3]):
        born = _keep_spare(request, descriptors)
    _become(*born, made)


def _preload() -> None:
    sys.path.insert(0, str(ROOT))
    from colonnade.cli import fork_server as nursery

    nursery._preload()
    for name in _MORE:
        importlib.import_module(name)
    _import_most()
    del sys.path[0]
    tasks = len(list(Path("/proc/self/task").iterdir()))
    assert tasks == 1, f"an import starts threads, which a fork would lose: {tasks} are running"
    gc.collect()
    gc.freeze()  # what is imported stays shared: a collection would write to every page


def _import_most() -> None:
    """Imports the product's modules except those that import what must not be forked, which thereby fail."""
    import colonnade

    sys.modules.update(dict.fromkeys(_NEVER))  # None: it cannot be imported
    for module in pkgutil.walk_packages(colonnade.__path__, "colonnade."):
        if not module.name.startswith(("colonnade.__main__", "colonnade.attacks", "colonnade.experiments")):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in _NEVER:
        del sys.modules[name]


def _serve(requests: socket.socket) -> tuple[Request, list[int]] | None:
    """Forks until the tests' end of the socket is closed. Returns in a child what it is to be, else None at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a Ctrl-C is for the tests; a child unblocks it
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    reports: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector, requests, wake, woken:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is wake:
                    wake.recv(4096)
                    _reap(reports)
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 4)
                if not message:
                    for pid in reports:
                        os.kill(pid, signal.SIGKILL)
                    return None
                report = socket.socket(fileno=descriptors.pop())
                server = os.getpid()
                if pid := os.fork():
                    reports[pid] = report
                    report.send(str(pid).encode())
                    for descriptor in descriptors:
                        os.close(descriptor)
                    continue
                for inherited in (report, *reports.values()):
                    inherited.close()
                signal.set_wakeup_fd(-1)
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != server:  # it has ended before that was asked for
                    os._exit(1)
                return json.loads(message), descriptors


def _reap(reports: dict[int, socket.socket]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with reports.pop(pid) as report, suppress(BrokenPipeError):  # nobody waits for it any more
            report.send(str(status).encode())


def _keep_spare(request: Request, descriptors: list[int]) -> tuple[Request, list[int]]:
    """Forks the child that becomes this one's fork server should it start one, which it does by subprocess.

    Returns in both: in this one what it was given, in the spare what it is to be.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        _Nursed.spare = pid, ours
        subprocess.Popen = _Nursed  # type: ignore[misc]
        return request, descriptors
    ours.close()
    for descriptor in descriptors:
        os.close(descriptor)
    with theirs:
        message, received, _, _ = socket.recv_fds(theirs, _LARGEST, 3)
    if not message:
        os._exit(0)
    return json.loads(message), received


class _Nursed(subprocess.Popen[str]):
    """In a child: what starts the fork server of `colonnade up` gets the spare, which is a child of this process."""

    spare: tuple[int, socket.socket] | None = None

    def _execute_child(self, *given: Any) -> None:
        asked = _bound(super()._execute_child, given)
        if asked["args"][1:] != _NURSERY or _Nursed.spare is None:
            super()._execute_child(*given)
            return
        (self.pid, spare), _Nursed.spare = _Nursed.spare, None
        self._child_created = True
        with spare:
            socket.send_fds(spare, [json.dumps(_request(asked)).encode()], _descriptors(asked))
        _close_ends(self, asked)


def _become(request: Request, descriptors: list[int], made: dict[str, str]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["session"]:
        os.setsid()
    if request["group"] is not None and request["group"] >= 0:
        os.setpgid(0, request["group"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update({**made, **request["env"]})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if nursery := sys.modules.get("colonnade.cli.fork_server"):
        nursery._reseed(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        _run(*request["argv"])
    except SystemExit as ended:
        _leave(ended.code)
    _leave(None)  # of any other exception the interpreter makes what it always does


def _leave(code: Any) -> NoReturn:
    """Ends as the interpreter does, but leaves the memory to the system: to clear it takes longer than a command."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _run(option: str, program: str, *argv: str) -> None:
    """What `python -m PROGRAM ARGV` or `python -c PROGRAM ARGV` does."""
    begin = "" if option == "-c" else str(Path.cwd())
    sys.path[:0] = [begin, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [option, *argv]
    if option == "-m":
        sys.modules.pop(program, None)  # runpy warns of one that is imported already
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    _main()
