"""File systems of a given size for members' folders, which can be filled. They need root."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from benchmarks.runs import ROOT
from benchmarks.soak.authority import Authority
from benchmarks.soak.link import Link
from benchmarks.soak.members import Household
from benchmarks.soak.schedule import STRANGERS, Trouble

MEGABYTES = 256


class Disk:
    """A tmpfs at a new folder. A context manager: afterwards the folder holds the same files on the underlying disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True)
        size = f"size={MEGABYTES}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "soak", str(self.folder)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
        kept = self.folder.with_name(f"{self.folder.name}.kept")
        shutil.copytree(self.folder, kept)
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
        self.folder.rmdir()
        kept.rename(self.folder)

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def available() -> str:
    """Reason that none can be mounted here, or ""."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    probe = Path(f"/tmp/soak-probe-{os.getpid()}")
    probe.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "soak", str(probe)], capture_output=True, text=True, check=False
    )
    if made.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    probe.rmdir()
    return made.stderr.strip()


RATE, SILENT = 20, 60  # connections a second; concurrent silent connections
_PLAIN = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
_TLS = b"\x16\x03\x01\x02\x00\x01"  # a record that begins like a ClientHello


def knock(kind: str, port: int, keys: Path, seconds: float) -> int:
    """Knocks for some seconds; returns how often, or 0 where another process does it.

    Args:
        keys: folder of all members' keys, and those of `foreign` and `former`.
    """
    if kind in ("revoked", "hellos"):
        _flooder(kind, port, keys, seconds)
        return 0
    until, held, count = time.monotonic() + seconds, deque[socket.socket](), 0
    draws = random.Random(port)
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            held.append(_one(kind, port, keys, draws))
            count += 1
        while len(held) > SILENT:
            held.popleft().close()
        time.sleep(1 / RATE)
    for connection in held:
        connection.close()
    return count


def _one(kind: str, port: int, keys: Path, draws: random.Random) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 5)
    if kind == "plain":
        connection.sendall(_PLAIN)
    elif kind == "garbage":
        connection.sendall((_TLS if draws.random() < 0.5 else b"") + draws.randbytes(2000))
    elif kind == "foreign":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(keys / "foreign" / "cert.pem", keys / "foreign" / "key.pem")
        secured = context.wrap_socket(connection, server_hostname="localhost")
        secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        return secured
    return connection


def _flooder(kind: str, port: int, keys: Path, seconds: float) -> None:
    argv = [sys.executable, "-m", "benchmarks.flooders", kind, str(port), str(keys)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as flooder:
        time.sleep(seconds + 1)  # it takes a moment to start
        flooder.kill()


UNTIL_TOLD = float("inf")
FAREWELL = 20.0  # seconds that members have to end after SIGTERM


@dataclass
class World:
    household: Household
    links: dict[str, Link]
    disks: dict[str, Disk]
    authority: Authority
    port: int

    def perform(self, trouble: Trouble) -> str:
        """Causes a trouble, and ends its cause. Returns a note, or ""."""
        first = trouble.members[0]
        if trouble.kind in STRANGERS:
            count = knock(trouble.kind, self.port, self.authority.keys(first).parent, trouble.seconds)
            return f"{count} connections" if count else ""
        match trouble.kind.split()[0]:
            case "kill":
                self.household.end(trouble.members, signal.SIGKILL, trouble.seconds)
                time.sleep(trouble.seconds)
            case "stop":
                self.household.end(trouble.members, signal.SIGTERM, trouble.seconds)
                time.sleep(trouble.seconds)
            case "freeze":
                self.household.signal(first, signal.SIGSTOP)
                time.sleep(trouble.seconds)
                self.household.signal(first, signal.SIGCONT)
            case "cut":
                self.links[first].cut()
            case "hold":
                self.links[first].hold()
                time.sleep(trouble.seconds)
                self.links[first].mend()
            case "close":
                self.links[first].close()
                time.sleep(trouble.seconds)
                self.links[first].mend()
            case "full":
                return self._full(first, trouble.seconds)
            case "list":
                self._unreadable(trouble.seconds)
            case "renew":
                self._renewed(first, new_key=False)
            case "revoke":
                self.authority.revoke(first, "a lost laptop")
                time.sleep(trouble.seconds)
                self._renewed(first, new_key=True)
        return ""

    def stop_all(self) -> list[str]:
        """Tells all to end; returns those that did not within `FAREWELL`."""
        self.household.end(tuple(self.household.members), signal.SIGTERM, UNTIL_TOLD)
        return self.household.await_ends(FAREWELL)

    def _full(self, name: str, seconds: float) -> str:
        if name not in self.disks:
            return "left out: no file system of its own"
        self.disks[name].fill()
        time.sleep(seconds)
        self.disks[name].free()
        return ""

    def _unreadable(self, seconds: float) -> None:
        path = self.authority.revoked
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        time.sleep(seconds)
        path.write_bytes(whole)

    def _renewed(self, name: str, *, new_key: bool) -> None:
        slow = self.stop_all()
        for each in slow:
            self.household.signal(each, signal.SIGKILL)
        self.authority.renew(name, new_key=new_key)
        self.household.begin()
