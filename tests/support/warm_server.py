"""The process that forks the commands of tests (see tests/support/warm.py), run as a script, and its children."""

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
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

ROOT = Path(__file__).parents[2]
_STARTED_BY_COMMANDS = (["-P", "-m", "colonnade.cli.fork_server"], ["-P", "-m", "colonnade.search.workers"])
_CHILDLESS = ("server", "client", "health")  # commands that never start one of these
# Imported in addition to the imports of the fork server, since most runs do.
_MORE = ("sklearn.datasets", "sklearn.metrics", "prometheus_client", "uvloop")
_NEVER = ("grpc", "mlflow", "pyarrow", "tensorboard", "timm", "transformers")  # their threads would be lost
_PR_SET_PDEATHSIG = 1
_LARGEST = 1 << 18  # bytes of a request

Request = dict[str, Any]


def arguments_of(method: Any, given: Sequence[Any]) -> Request:
    """The arguments of Popen._execute_child by name: their order may change in CPython."""
    return inspect.signature(method).bind(*given).arguments


def request_of(asked: Request, files: tuple[int, int] | None = None) -> Request:
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


def descriptors_of(asked: Request) -> list[int]:
    """The child's three descriptors; -1 stands for an inherited one."""
    ends = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
    return [inherited if end == -1 else end for inherited, end in enumerate(ends)]


def close_ends(process: Any, asked: Request) -> None:
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(asked[name] for name in names))


def spare_the_disk() -> None:
    """Nothing in this process waits until the disk has what was written: that is for a power cut, and none comes.

    A killed process leaves all that it wrote. Disks that fail are tested with an `os.fsync` of the test's own.
    """
    os.fsync = os.fdatasync = _known  # type: ignore[assignment]


def _known(descriptor: Any) -> None:
    """Refuses, like the call it replaces, what is no open file."""
    os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())


def _main() -> None:
    del sys.path[0]  # of this file
    spare_the_disk()
    requests, before = socket.socket(fileno=int(sys.argv[1])), dict(os.environ)
    if sys.argv[2] == "all":
        _preload()
    made = {key: value for key, value in os.environ.items() if before.get(key) != value}  # by imports
    started = _serve(requests)
    if started is None:
        return
    request, descriptors = started
    if request["argv"][1] == "colonnade" and not set(_CHILDLESS) & set(request["argv"][2:3]):
        started = _keep_spares(request, descriptors)
    _become(*started, made)


def _preload() -> None:
    sys.path.insert(0, str(ROOT))
    from colonnade.cli import fork_server

    sys.modules["pandas"] = None  # type: ignore[assignment]  # scikit-learn imports it, and it starts a thread
    fork_server.preload()
    for name in _MORE:
        importlib.import_module(name)
    _import_most()
    del sys.path[0], sys.modules["pandas"]
    tasks = len(list(Path("/proc/self/task").iterdir()))
    assert tasks == 1, f"an import starts threads, which a fork would lose: {tasks} are running"
    gc.collect()
    gc.freeze()  # imported objects stay shared: a collection would write to every page


def _import_most() -> None:
    """Imports the product's modules, except those that import modules of _NEVER and thereby fail."""
    import colonnade

    sys.modules.update(dict.fromkeys(_NEVER))  # None: it cannot be imported
    for module in pkgutil.walk_packages(colonnade.__path__, "colonnade."):
        if not module.name.startswith(("colonnade.__main__", "colonnade.attacks", "colonnade.experiments")):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in _NEVER:
        del sys.modules[name]


def _serve(requests: socket.socket) -> tuple[Request, list[int]] | None:
    """Forks until the tests' end of the socket is closed. Returns the request in a child, None at the end."""
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
                if os.getppid() != server:  # it ended before the call above
                    os._exit(1)
                return json.loads(message), descriptors


def _reap(reports: dict[int, socket.socket]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with reports.pop(pid) as report, suppress(BrokenPipeError):  # no process waits for it
            report.send(str(status).encode())


def _keep_spares(request: Request, descriptors: list[int]) -> tuple[Request, list[int]]:
    """Forks the children that become this one's fork server, or workers, if it starts some by subprocess.

    Returns in all: the given request in this one, its own request in a spare.
    """
    argv = request["argv"]
    jobs = argv[argv.index("--jobs") + 1] if "--jobs" in argv[:-1] else ""
    for _ in range(max(1, min(int(jobs), 4)) if jobs.isdecimal() else 1):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            return _await_request(ours, theirs, descriptors)
        theirs.close()
        _WithSpares.spares.append((pid, ours))
    subprocess.Popen = _WithSpares  # type: ignore[misc]
    return request, descriptors


def _await_request(ours: socket.socket, theirs: socket.socket, descriptors: list[int]) -> tuple[Request, list[int]]:
    for inherited in (ours, *(spare for _, spare in _WithSpares.spares)):
        inherited.close()
    for descriptor in descriptors:
        os.close(descriptor)
    with theirs:
        message, received, _, _ = socket.recv_fds(theirs, _LARGEST, 3)
    if not message:
        os._exit(0)
    return json.loads(message), received


class _WithSpares(subprocess.Popen[str]):
    """In a child: the start of the fork server of `colonnade up`, or of a worker, gets a spare, a child of this one."""

    spares: ClassVar[list[tuple[int, socket.socket]]] = []

    def _execute_child(self, *given: Any) -> None:
        asked = arguments_of(super()._execute_child, given)
        if asked["args"][1:4] not in _STARTED_BY_COMMANDS or not _WithSpares.spares:
            super()._execute_child(*given)
            return
        self.pid, spare = _WithSpares.spares.pop()
        self._child_created = True
        with spare:
            socket.send_fds(spare, [json.dumps(request_of(asked)).encode()], descriptors_of(asked))
        close_ends(self, asked)


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
    if screen := sys.modules.get("colonnade.reports.console.screen"):  # made at import, without a terminal
        for console, how in ((screen.out, {}), (screen.err, {"stderr": True})):
            console.__init__(**how)
    if draws := sys.modules.get("colonnade.common.data.draws"):
        draws.reseed(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        _run(*request["argv"])
    except SystemExit as ended:
        _leave(ended.code)
    _leave(None)  # any other exception is left to the interpreter


def _leave(code: Any) -> NoReturn:
    """Ends as the interpreter does, without freeing the memory, which takes longer than a command."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _run(option: str, program: str, *argv: str) -> None:
    """Runs as `python -m PROGRAM ARGV` or `python -c PROGRAM ARGV` does, with -P before or not."""
    begin = ["" if option == "-c" else str(Path.cwd())]
    if option == "-P":
        begin, option, program, argv = [], program, argv[0], argv[1:]
    sys.path[:0] = [*begin, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [option, *argv]
    if option == "-m":
        sys.modules.pop(program, None)  # runpy warns of one that is imported already
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    _main()
