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

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
COLONNADE = (sys.executable, "-m", "colonnade")
_NETNS = Path("/etc/netns")  # `ip netns exec` lays NAME's files here over /etc


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
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._space(name), *map(str, argv)],
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
