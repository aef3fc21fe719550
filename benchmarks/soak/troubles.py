"""Troubles: their schedule from a seed, and what causes them: links that can be cut, file systems that can be filled
(they need root), strangers, and signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.runs import ROOT
from benchmarks.soak.members import MEMBERS, PARTIES, Authority, Household
from colonnade.common.conversation.conversation import SERVER

BRIEF, LONG = (0.5, 5.0), (2.0, 30.0)  # seconds
SHORT_OF_DISK = "party1", SERVER  # their folders are on file systems of their own
OFTEN_RESTARTED = ("party1", "party2")
STRANGERS = ("silent", "plain", "garbage", "foreign", "revoked", "hellos")

# Kinds in which the server, party3 and party4 keep their processes, so that growth shows over many minutes.
CALM: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "kill": (OFTEN_RESTARTED, BRIEF),
    "stop": (OFTEN_RESTARTED, BRIEF),
    "freeze": (OFTEN_RESTARTED, LONG),
    "cut": (PARTIES, (0.0, 0.0)),
    "hold": (PARTIES, LONG),
    "close": (PARTIES, (1.0, 15.0)),
    "list": ((SERVER,), (3.0, 14.0)),
    **dict.fromkeys(STRANGERS, ((SERVER,), (4.0, 10.0))),
}
HARD: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "kill": ((SERVER,), BRIEF),
    "stop": ((SERVER,), BRIEF),
    "freeze": ((SERVER,), (2.0, 25.0)),
    "full": ((SERVER,), (5.0, 15.0)),
    "full party": (("party1",), (5.0, 15.0)),  # ends the run at all members, as documented
    "kill party": (("party3", "party4"), BRIEF),
    "kill all": (MEMBERS, BRIEF),
    "renew": (PARTIES, (0.0, 0.0)),
    "revoke": (PARTIES, (3.0, 6.0)),
}


@dataclass(frozen=True)
class Trouble:
    kind: str
    members: tuple[str, ...]
    seconds: float
    pause: float

    def __str__(self) -> str:
        who = "all" if len(self.members) > 1 else self.members[0]
        return f"{self.kind} {who}" + (f" {self.seconds:.1f} s" if self.seconds else "")


def troubles(seed: int, minutes: float) -> Iterator[Trouble]:
    """Endless troubles, in chapters: calm ones in random order, then hard ones in random order.

    Args:
        minutes: of the soak. Up to ten minutes calm and hard ones are mixed; longer soaks have longer chapters.
    """
    draws = random.Random(seed)
    repeats = 1 if minutes <= 10 else 2 if minutes <= 30 else 4
    while True:
        calm = [_draw(draws, kind, *CALM[kind]) for kind in CALM for _ in range(repeats)]
        hard = [_draw(draws, kind, *HARD[kind]) for kind in HARD]
        draws.shuffle(calm)
        draws.shuffle(hard)
        both = calm + hard
        if repeats == 1:
            draws.shuffle(both)
        yield from both


def _draw(draws: random.Random, kind: str, members: tuple[str, ...], seconds: tuple[float, float]) -> Trouble:
    victims = members if kind == "kill all" else (draws.choice(members),)
    return Trouble(kind, victims, round(draws.uniform(*seconds), 1), round(draws.uniform(3.0, 9.0), 1))


@dataclass
class World:
    household: Household
    links: dict[str, Link]
    disks: dict[str, Disk]
    authority: Authority
    port: int

    def perform(self, trouble: Trouble) -> None:
        """Causes a trouble, and ends its cause."""
        first, kind = trouble.members[0], trouble.kind.split()[0]
        if kind in STRANGERS:
            knock(kind, self.port, self.authority.keys(first).parent, trouble.seconds)
        elif kind == "cut":
            self.links[first].cut()
        elif kind == "renew":
            self._renew(first, new_key=False)
        else:
            with self._while(kind, trouble):
                time.sleep(trouble.seconds)
        if kind == "revoke":
            self._renew(first, new_key=True)

    @contextlib.contextmanager
    def _while(self, kind: str, trouble: Trouble) -> Iterator[None]:
        """The block runs while the cause lasts."""
        first, torn = trouble.members[0], self.authority.revoked
        match kind:
            case "kill" | "stop":
                number = signal.SIGKILL if kind == "kill" else signal.SIGTERM
                self.household.end(trouble.members, number, trouble.seconds)
                yield
            case "freeze":
                self.household.signal(first, signal.SIGSTOP)
                yield
                self.household.signal(first, signal.SIGCONT)
            case "hold" | "close":
                link = self.links[first]
                (link.hold if kind == "hold" else link.close)()
                yield
                link.mend()
            case "full":
                self.disks[first].fill()
                yield
                self.disks[first].free()
            case "list":
                whole = torn.read_bytes()
                torn.write_bytes(whole[: len(whole) // 2])
                yield
                torn.write_bytes(whole)
            case "revoke":
                self.authority.revoke(first, "a lost laptop")
                yield
            case _:
                yield

    def _renew(self, name: str, *, new_key: bool) -> None:
        self.household.stop()
        self.authority.renew(name, new_key=new_key)
        self.household.begin()


_RESET = struct.pack("ii", 1, 0)  # closing sends RST, as after a pulled cable that a router noticed


class Links:
    """TCP proxies on loopback between parties and the server, in a thread. A context manager."""

    def __init__(self, port: int) -> None:
        self.port, self.loop = port, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.cut()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def new(self) -> Link:
        self._links.append(link := Link(self))
        asyncio.run_coroutine_threadsafe(link.start(), self.loop).result(30)
        return link


class Link:
    """One link. Its methods may be called in any thread."""

    def __init__(self, links: Links) -> None:
        self.port, self._links = 0, links
        self._flowing, self._accepts = asyncio.Event(), True
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Resets all connections at both ends; accepts new ones."""
        done = threading.Event()

        def reset_all() -> None:
            for writer in list(self._writers):
                _reset(writer)
            done.set()

        self._links.loop.call_soon_threadsafe(reset_all)
        done.wait(30)

    def hold(self) -> None:
        """Forwards nothing until `mend`; connections stay open, and new ones are accepted."""
        self._links.loop.call_soon_threadsafe(self._flowing.clear)

    def close(self) -> None:
        """Resets all connections, and each new one at once, until `mend`."""
        self._accepts = False
        self.cut()

    def mend(self) -> None:
        """Forwards again, including what was held."""
        self._accepts = True
        self._links.loop.call_soon_threadsafe(self._flowing.set)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._accepts:
                raise OSError
            source, onwards = await asyncio.open_connection("127.0.0.1", self._links.port)
        except OSError:
            _reset(writer)
            return
        pair = {writer, onwards}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(reader, onwards), self._pump(source, writer))
        finally:
            self._writers -= pair
            for each in pair:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            await self._flowing.wait()
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class Disk:
    """A tmpfs at a new folder. A context manager: afterwards the folder holds the same files on the underlying disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._filler = folder, folder / ".filler"

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True)
        _mount(self.folder, "size=256m,mode=0700").check_returncode()
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


def _mount(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    command = ["mount", "-t", "tmpfs", "-o", options, "soak", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def no_disks(probe: Path) -> str:
    """Reason that none can be mounted here, or "". The folder is made and removed."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    probe.mkdir()
    made = _mount(probe, "size=1m")
    if made.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    probe.rmdir()
    return made.stderr.strip()


def knock(kind: str, port: int, keys: Path, seconds: float) -> None:
    """Strangers of a kind, of benchmarks/flooders.py, knock for some seconds: connections 20 times a second.

    Args:
        keys: folder of all members' keys, and those of `foreign` and `former`.
    """
    argv = [sys.executable, "-m", "benchmarks.flooders", kind, str(port), str(keys), "20"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as flooder:
        time.sleep(seconds + 1)  # it takes a moment to start
        flooder.kill()
