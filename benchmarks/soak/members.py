"""The members of a soak: keys, certificates and files, made by the commands of deploy/machines.md, and processes, which
are restarted with the same command whenever they end, as by a service manager.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.runs import ROOT
from colonnade.common.conversation.conversation import SERVER

PARTIES = ("party1", "party2", "party3", "party4")
MEMBERS = (SERVER, *PARTIES)
ROUNDS, CHECKPOINT, PACE = 1_000_000, 10, "0.35s"
BACKOFF, FAREWELL = 1.0, 20.0  # seconds between an end and the next start, and that members have to end after SIGTERM
UNTIL_TOLD = float("inf")

_DIGITS = {"source": "sklearn", "name": "digits"}
AGREED: dict[str, Any] = {
    "id": "soak", "protocol": {"name": "split_avg", "embedding": 16, "aggregate": "blinded"}, "parties": list(PARTIES),
    "classes": 10, "rounds": ROUNDS, "batch": 64, "checkpoint": {"rounds": CHECKPOINT}, "evaluate": {"every": 200},
    "public_start": True,  # the control begins with the same parameters
}  # fmt: skip
OWN = {"labels": _DIGITS, "head": {"name": "linear"}, "optimiser": {"name": "sgd", "lr": 0.01}}
EVERY = {
    "data": {**_DIGITS, "split": "columns", "scale": "standard"}, "model": {"name": "mlp", "hidden": 32},
    "optimiser": {"name": "sgd", "lr": 0.005},  # slow, so that parameters still change after hours
}  # fmt: skip


def colonnade(*argv: object) -> str:
    command = [sys.executable, "-m", "colonnade", *map(str, argv)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"colonnade {' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done.stdout


class Authority:
    """The authority's folder, every member's keys, the roster and the files.

    listen: the server's address.
    dials: the address that each party dials.
    metrics: the port of each member's metrics.
    """

    def __init__(self, folder: Path, listen: str, dials: dict[str, str], metrics: dict[str, int]) -> None:
        self.folder, self._listen, self._dials, self._metrics = folder, listen, dials, metrics
        self.revoked, self._ca, self._roster = folder / "revoked.json", folder / "ca", folder / "federation.yaml"
        self.folder.mkdir()
        for ca in ("ca", "foreign-ca"):
            colonnade("certs", "ca", folder / ca)
        for name in (*MEMBERS, "former"):
            colonnade("certs", "request", name, self.keys(name), *(["--loopback"] if name == SERVER else []))
            self._sign(name, self._ca)
        colonnade("certs", "request", "party1", self.keys("foreign"))
        self._sign("foreign", folder / "foreign-ca")
        self.revoke("former", "left")
        self._write(self._roster, AGREED)
        self._pin(MEMBERS)
        self.write()

    def keys(self, name: str) -> Path:
        return self.folder / "keys" / name

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def renew(self, name: str, *, new_key: bool) -> None:
        """Gives a member a new certificate, for its key or a new one, and pins it."""
        keys = self.keys(name)
        if new_key:
            shutil.rmtree(keys)
            colonnade("certs", "request", name, keys)
        else:
            colonnade("certs", "renew", keys)
        self._sign(name, self._ca, "--force")
        self._pin((name,), "--replace")
        self.write()

    def revoke(self, name: str, reason: str) -> None:
        colonnade("certs", "revoke", self.keys(name) / "cert.pem", "--list", self.revoked, "--reason", reason)

    def write(self, rounds: int = ROUNDS) -> None:
        agreed = yaml.safe_load(self._roster.read_text(encoding="utf-8"))["federation"] | {"rounds": rounds}
        for name in MEMBERS:
            own: dict[str, Any] = {"identity": str(self.keys(name)), "metrics": self._metrics[name]}
            if name == SERVER:
                own |= {**OWN, "listen": self._listen, "revoked": str(self.revoked)}
            else:
                own |= {**EVERY, "connect": self._dials[name], "chaos": {"delay": PACE}}
            self._write(self.file(name), agreed, **({SERVER: own} if name == SERVER else {"parties": {name: own}}))

    def control(self, rounds: int) -> Path:
        self._write(path := self.folder / "control.yaml", {**AGREED, "rounds": rounds}, server=OWN, every_party=EVERY)
        return path

    def _write(self, path: Path, agreed: dict[str, Any], **more: Any) -> None:
        path.write_text(yaml.safe_dump({"federation": agreed, **more}, sort_keys=False), encoding="utf-8")

    def _sign(self, name: str, ca: Path, *options: str) -> None:
        keys, role = self.keys(name), SERVER if name == SERVER else "party"
        signed = keys / "cert.pem"
        colonnade("certs", "sign", keys / "request.csr", "--ca", ca, "--out", signed, "--role", role, *options)
        shutil.copy(ca / "cert.pem", keys / "ca.pem")

    def _pin(self, names: tuple[str, ...], *options: str) -> None:
        certificates = [f"{name}={self.keys(name) / 'cert.pem'}" for name in names]
        colonnade("certs", "pin", self._roster, *certificates, "--ca", self._ca / "cert.pem", *options)


@dataclass
class Life:
    """One process of a member.

    Args:
        begun: seconds since 1970.
        ended: the same; 0 while it runs.
        ordered: True if the soak ended it by a signal.
    """

    member: str
    pid: int
    begun: float
    ended: float = 0.0
    code: int | None = None
    ordered: bool = False


@dataclass
class Member:
    """A member: its name, its configuration, its folder, its log, and its processes so far."""

    name: str
    file: Path
    folder: Path
    log: Path
    lives: list[Life] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    held: float = 0.0  # earliest start; infinite: never

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        if self.process is not None and self.alive:
            self.process.send_signal(number)

    def look(self, environment: dict[str, str]) -> None:
        """Notes an end, and starts the next process when it is time."""
        if self.alive:
            return
        now = time.time()
        if self.process is not None and not self.lives[-1].ended:
            life = self.lives[-1]
            life.ended, life.code = now, self.process.returncode
            self.held = UNTIL_TOLD if life.code == 0 else max(self.held, now + BACKOFF)
        if now >= self.held:
            command = [SERVER if self.name == SERVER else "client", str(self.file), "--in", str(self.folder)]
            with self.log.open("ab") as words:
                words.write(f"--- started at {now:.1f}\n".encode())
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "colonnade", *command],
                    cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                )  # fmt: skip
            self.lives.append(Life(self.name, self.process.pid, now))


class Household:
    """Starts and restarts members, and keeps a record. A context manager."""

    def __init__(self, members: dict[str, Member], scratch: Path) -> None:
        self.members = members
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLONNADE_LOG": "info", "TMPDIR": str(scratch)}
        self._lock, self._over = threading.RLock(), threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Household:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._keeper.join()
        for member in self.members.values():
            member.send(signal.SIGCONT)
            member.send(signal.SIGKILL)
            if member.process is not None:
                member.process.wait()

    def end(self, names: Iterable[str], number: int, seconds: float) -> None:
        """Ends members by a signal, and restarts them after `seconds` (infinite: on `begin`)."""
        with self._lock:
            for member in map(self.members.__getitem__, names):
                member.held = time.time() + seconds
                if member.alive:
                    member.lives[-1].ordered = True
                    member.send(number)

    def begin(self) -> None:
        with self._lock:
            for member in self.members.values():
                member.held = 0.0

    def signal(self, name: str, number: int) -> None:
        with self._lock:
            self.members[name].send(number)

    def stop(self) -> None:
        """Ends all until `begin`: kills those that are slower than `FAREWELL`."""
        self.end(MEMBERS, signal.SIGTERM, UNTIL_TOLD)
        until = time.monotonic() + FAREWELL
        while any(one.alive for one in self.members.values()) and time.monotonic() < until:
            time.sleep(0.1)
        for name in MEMBERS:
            self.signal(name, signal.SIGKILL)

    def lives(self) -> list[Life]:
        with self._lock:
            return [life for member in self.members.values() for life in member.lives]

    def _keep(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                for member in self.members.values():
                    member.look(self._environment)
