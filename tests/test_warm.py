"""Processes that tests fork are those that subprocess would start, and end with their starter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import warm
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.processes

PYTHON = (sys.executable, "-c")
ABOUT = """
import json, os, resource, signal, sys
umask = os.umask(0)
said = {
    "argv": sys.argv, "path": sys.path[:2], "cwd": os.getcwd(), "env": os.environ.get("MINE"), "umask": umask,
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(), "input": sys.stdin.read(),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],  # the last is of the listing
    "tasks": len(os.listdir("/proc/self/task")), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "children": str(signal.getsignal(signal.SIGCHLD)),
    "name": __name__, "cipher": os.environ.get("GRPC_SSL_CIPHER_SUITES"),
}
print(json.dumps(said))
print("to the other", file=sys.stderr)
"""
NOT_THEIRS = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}  # set by an import
SETTINGS = {
    "inherited": {},
    "of its own": {"umask": 0o027, "start_new_session": True, "env": {**NOT_THEIRS, "MINE": "x", "PYTHONPATH": "/p"}},
    "in a group": {"process_group": 0},
}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server for this test alone, which imports nothing."""
    monkeypatch.setattr(warm.Server, "only", None)
    monkeypatch.setattr(warm.Server, "preload", "nothing")
    yield
    if warm.Server.only is not None:
        warm.Server.only.close()


@pytest.mark.parametrize("how", SETTINGS.values(), ids=SETTINGS)
def test_a_forked_process_is_as_subprocess_would_start_it(tmp_path: Path, how: dict) -> None:
    said = []
    for start in (warm.Popen, subprocess.Popen):
        code = ABOUT if start is warm.Popen else "import colonnade.common\n" + ABOUT
        process = start(
            [*PYTHON, code, "a", "b"], cwd=tmp_path, text=True, **how,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = process.communicate("read me", timeout=PATIENCE)
        assert process.returncode == 0 and err == "to the other\n", err
        said.append(json.loads(out))
    assert said[0] == said[1] and said[0]["input"] == "read me"


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('not so')", 1, "not so\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import atexit, os; atexit.register(os.write, 2, b'last\\n')", 0, "last\n"),
        ("import threading; threading.Timer(0.1, lambda: print('later')).start()", 0, "later\n"),
    ],
)
def test_it_ends_as_an_interpreter_does(bare: None, code: str, status: int, said: str) -> None:
    process = warm.Popen([*PYTHON, code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == process.poll() == process.wait() == status
    assert output.endswith(said) and bool(output) == bool(said)


def test_it_can_be_waited_for_in_vain_and_interrupted(bare: None) -> None:
    code = "print('here', flush=True)\ntry: input()\nexcept KeyboardInterrupt: print('stopped')"
    with warm.Popen([*PYTHON, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None and psutil.pid_exists(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0] == "stopped\n" and process.returncode == 0


def test_its_limit_of_open_files_is_as_given(bare: None) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    done = warm.run([*PYTHON, code], check=True, capture_output=True, files=(100, 200))
    assert done.stdout == "(100, 200)\n"


def test_each_draws_numbers_of_its_own() -> None:
    code = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    drawn = [warm.run([*PYTHON, code], check=True, capture_output=True).stdout.split() for _ in range(2)]
    assert all(one != other for one, other in zip(*drawn, strict=True)) and len(drawn[0]) == 3


def test_the_fork_server_of_a_launcher_is_forked_from_it(tmp_path: Path) -> None:
    process = warm.start("up", "--out", tmp_path / "run", cwd=warm.ROOT, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while len(children := psutil.Process(process.pid).children(recursive=True)) < 6:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        fork_server = children[0]
        assert fork_server.cmdline() == psutil.Process(process.pid).cmdline()  # else: -m colonnade.cli.fork_server
        assert {child.ppid() for child in children[1:]} == {fork_server.pid}
        assert os.getsid(fork_server.pid) == fork_server.pid
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive


def test_a_server_that_crashes_is_named_its_children_end_and_the_next_start_has_another(bare: None) -> None:
    waiting = warm.Popen([*PYTHON, "input()"], stdin=subprocess.PIPE)
    child, server = psutil.Process(waiting.pid), psutil.Process(waiting.pid).parent()
    assert server is not None
    server.kill()
    with pytest.raises(RuntimeError, match="the server that forks processes for tests ended with code -9"):
        waiting.wait(PATIENCE)
    assert not psutil.wait_procs([child], timeout=PATIENCE)[1]
    assert warm.run([*PYTHON, "pass"], check=True).returncode == 0
    assert waiting.stdin is not None
    waiting.stdin.close()


def test_everything_ends_with_the_tests() -> None:
    code = (
        "import sys, os\nfrom tests.support import warm\nwarm.Server.preload = 'nothing'\n"
        "process = warm.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(process.pid, warm.Server.only._process.pid, flush=True)\nprocess.wait()"
    )
    tests = subprocess.Popen([*PYTHON, code], cwd=warm.ROOT, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    children = [psutil.Process(int(pid)) for pid in tests.stdout.readline().split()]
    tests.kill()
    tests.communicate()
    assert len(children) == 2 and not psutil.wait_procs(children, timeout=PATIENCE)[1]
