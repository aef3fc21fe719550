"""Machines with addresses of their own on this one: network namespaces, cables between them, and their processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support import warm
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
COLONNADE = (sys.executable, "-m", "colonnade")
_NETNS = Path("/etc/netns")  # `ip netns exec` lays NAME's files here over /etc
# As `ip netns exec SPACE python -m PROGRAM ARGV`, in a process that has imported the program's modules already. The
# mounts are made private before the namespace's own files are laid over /etc.
_ENTER = """
import ctypes, os, runpy, sys
space, program, *argv = sys.argv[1:]
libc, new_network, new_mounts = ctypes.CDLL(None, use_errno=True), 0x40000000, 0x00020000
recursive, private, bind = 16384, 1 << 18, 4096

def do(code):
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), space)

with open(f"/run/netns/{space}") as network:
    do(libc.setns(network.fileno(), new_network))
do(libc.unshare(new_mounts))
do(libc.mount(b"none", b"/", None, recursive | private, None))
for name in os.listdir(f"/etc/netns/{space}"):
    do(libc.mount(f"/etc/netns/{space}/{name}".encode(), f"/etc/{name}".encode(), None, bind, None))
sys.argv = [program, *argv]
sys.path[0] = os.getcwd()
sys.modules.pop(program, None)
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


def available() -> str:
    """Reason that no namespaces can be made here, or "" if they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if missing := [tool for tool in ("ip", "iptables", "ip6tables") if shutil.which(tool) is None]:
        return f"there is no {missing[0]} here"
    probe = f"colonnade-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", probe], check=True)
    return made.stderr.strip()


class Network:
    """Namespaces that see nothing but each other. Their names carry this process's number.

    Args:
        hosts: content of /etc/hosts in all of them.
    """

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._machines: list[str] = []
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        for name in self._machines:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False)
            shutil.rmtree(_NETNS / self._space(name), ignore_errors=True)

    def machine(self, name: str, *, forwards: bool = False) -> None:
        """A machine without any cable; one that forwards is a router."""
        space = self._space(name)
        self._machines.append(name)
        (_NETNS / space).mkdir(parents=True)
        (_NETNS / space / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{self._hosts}")
        subprocess.run(["ip", "netns", "add", space], check=True)
        self.ip(name, "link set lo up")
        for family in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            self.run(name, "sh", "-c", f"echo {int(forwards)} > /proc/sys/net/{family}")

    def cable(self, end: str, addresses: str, other: str, others: str, *, routed: bool = True) -> None:
        """Lays a cable from a machine to another, interfaces `to-MACHINE`; addresses by spaces.

        With `routed`, `other` is the default route of `end`.
        """
        left, right = ("name", f"to-{other}", "netns", self._space(end)), (f"to-{end}", "netns", self._space(other))
        subprocess.run(["ip", "link", "add", *left, "type", "veth", "peer", "name", *right], check=True)
        for name, there, has in ((end, other, addresses), (other, end, others)):
            for address in has.split():
                self.ip(name, f"address add {address} dev to-{there}" + " nodad" * (":" in address))
            self.ip(name, f"link set to-{there} up")
        for gateway in others.split() if routed else ():
            self.ip(end, f"route add default via {gateway.partition('/')[0]}")

    def ip(self, name: str, command: str) -> None:
        """Runs `ip COMMAND` for a machine."""
        subprocess.run(["ip", "-n", self._space(name), *command.split()], check=True)

    def run(self, name: str, *argv: object, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs a command there to its end; the output has both streams."""
        process = self.start(name, *argv, cwd=cwd, **environ)
        output, _ = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(argv, process.returncode, output)

    def start(self, name: str, *argv: object, cwd: Path = ROOT, **environ: str) -> subprocess.Popen[str]:
        """Starts a command there."""
        clean = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        words, space = list(map(str, argv)), self._space(name)
        forked = words[: len(COLONNADE)] == list(COLONNADE)
        python = [sys.executable, "-c", _ENTER, space, *words[len(COLONNADE) - 1 :]]
        process = (warm.Popen if forked else subprocess.Popen)(
            python if forked else ["ip", "netns", "exec", space, *words],
            cwd=cwd,
            env={**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(process)
        return process

    def reaches(self, name: str, host: str, port: int) -> bool:
        """True if a machine can open a connection to another's port."""
        dial = f"import socket; socket.create_connection(({host!r}, {port}), 1)"
        return self.run(name, sys.executable, "-S", "-c", dial).returncode == 0

    def _space(self, name: str) -> str:
        return f"colonnade-{os.getpid()}-{name}"


def colonnade(*argv: object) -> tuple[object, ...]:
    """The command line of `colonnade ARGV`."""
    return (*COLONNADE, *argv)


def finish(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[int, str]:
    """The exit code and the output, in one line."""
    output, _ = process.communicate(timeout=seconds)
    assert "Traceback" not in output
    return process.returncode, " ".join(output.split())


def stop(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Asks a process to end, as systemd and Kubernetes do."""
    process.send_signal(signal.SIGTERM)
    return finish(process)


def events(out: Path, kind: str) -> list[dict]:
    """Events of a kind in a member's events.jsonl so far."""
    path = out / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def await_events(out: Path, kind: str, number: int, *alive: subprocess.Popen[str]) -> list[dict]:
    """Waits until there are that many, while these processes live."""
    deadline = time.monotonic() + PATIENCE
    while len(found := events(out, kind)) < number:
        dead = [process for process in alive if process.poll() is not None]
        assert not dead and time.monotonic() < deadline, [process.communicate()[0] for process in dead or alive[:0]]
        time.sleep(0.05)
    return found
