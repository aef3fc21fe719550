"""The fork server: imports torch once, then starts the processes of a run, each in milliseconds.

It reads requests as JSON lines from its standard input and writes reports to its standard output:

    {"start": NAME, "argv": [...], "log": PATH, "threads": N}   -> {"started": NAME, "pid": N}
    {"signal": NAME, "number": 15}
                                                      whenever a child ends   -> {"exited": NAME, "code": N}

It never runs a tensor operation, imports gRPC, looks for a GPU, or reads a key or a configuration, since a child
would inherit it. When its input ends, it kills its children.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import selectors
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from colonnade.cli.main import main as command_line
from colonnade.common.contracts.registry import NAMES
from colonnade.common.data.draws import reseed
from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.files import open_own
from colonnade.common.run.python_child import end_with_parent


def main() -> None:
    if sys.argv[1:] == ["answers"]:
        _preload_answers()
    else:
        preload()
    gc.freeze()  # keeps imported memory shared: a collection would write to every page
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    children: dict[int, str] = {}
    _say(ready=os.getpid())
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in selector.select():
                if key.fd == wake:
                    os.read(wake, 4096)
                    _reap(children)
                    continue
                read = os.read(sys.stdin.fileno(), 65536)
                if not read:
                    _end_all(children)
                    return
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    _obey(json.loads(line), children)


_TRAINING = ("google.protobuf.descriptor_pool", "torch.fx.experimental.symbolic_shapes")
"""Beside the protocols; the second would otherwise be imported at the first backward pass."""
_ANSWERING = (
    "google.protobuf.descriptor_pool", "colonnade.client.protocols", "colonnade.common.data.sources",
    "colonnade.common.data.table", "colonnade.common.parsing.file",
)  # fmt: skip


def preload() -> None:
    """Imports the heavy modules that both roles need, except those that must not be inherited."""
    for name in _TRAINING:
        import_module(name)
    from colonnade.server.protocols import SERVE  # noqa: PLC0415

    assert all(SERVE[name] for name in NAMES)  # imports them, but not other packages' code
    assert "grpc" not in sys.modules, "a protocol imports gRPC"


def _preload_answers() -> None:
    """Imports what parties need to answer with a trained model: no backward pass and no server."""
    for name in _ANSWERING:
        import_module(name)
    # Imports pandas if it is installed; otherwise every child would.
    import_module("pyarrow").array([""]).to_numpy(zero_copy_only=False)
    assert "grpc" not in sys.modules, "a protocol imports gRPC"


def _obey(request: dict[str, Any], children: dict[int, str]) -> None:
    if "signal" in request:
        for pid, name in children.items():
            if name == request["signal"]:
                os.kill(pid, request["number"])
        return
    sys.stdout.flush()
    ours = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(request, ours)
    children[pid] = request["start"]
    _say(started=request["start"], pid=pid)


def _become(request: dict[str, Any], parent: int) -> NoReturn:
    """Runs in the child: sets up its environment, then runs the command line."""
    code = 1
    try:
        end_with_parent(signal.SIGTERM, parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect(Path(request["log"]))
        reseed(request["threads"])
        code = _run(request["argv"])
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as failed:  # its log cannot be written
        code = EnvironmentFault.exit_code if failed.errno in (errno.ENOSPC, errno.EDQUOT) else 1
    finally:
        os._exit(code)


def _redirect(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    file = open_own(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(null, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _run(argv: list[str]) -> int:
    sys.argv = ["colonnade", *argv]
    try:
        command_line()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _reap(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _say(exited=children.pop(pid), code=os.waitstatus_to_exitcode(status))


def _end_all(children: dict[int, str]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _say(**report: Any) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
