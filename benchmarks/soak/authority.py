"""Keys, certificates and the members' files, made by the commands of deploy/machines.md."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.runs import ROOT
from benchmarks.soak.schedule import MEMBERS, PARTIES, SERVER

ROUNDS, CHECKPOINT, PACE = 1_000_000, 10, "0.35s"

AGREED: dict[str, Any] = {
    "id": "soak",
    "protocol": {"name": "split_avg", "embedding": 16, "aggregate": "blinded"},
    "parties": list(PARTIES),
    "classes": 10,
    "rounds": ROUNDS,
    "batch": 64,
    "checkpoint": {"rounds": CHECKPOINT},
    "evaluate": {"every": 200},
}
OWN: dict[str, Any] = {"labels": {"source": "sklearn", "name": "digits"}, "head": {"name": "linear"}}
OWN["optimiser"] = {"name": "sgd", "lr": 0.01}  # slow, so that parameters still change after hours
EVERY: dict[str, Any] = {
    "data": {"source": "sklearn", "name": "digits", "split": "columns", "scale": "standard"},
    "model": {"name": "mlp", "hidden": 32},
    "optimiser": {"name": "sgd", "lr": 0.005},
}


def colonnade(*argv: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "colonnade", *map(str, argv)], cwd=ROOT, text=True, capture_output=True, check=False
    )
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
        self._keys_made = 0

    def found(self) -> None:
        self.folder.mkdir()
        colonnade("certs", "ca", self._ca)
        colonnade("certs", "ca", self.folder / "foreign-ca")
        for name in (*MEMBERS, "former"):
            colonnade("certs", "request", name, self.keys(name), *(["--loopback"] if name == SERVER else []))
            self._sign(name, self._ca)
        colonnade("certs", "request", "party1", self.keys("foreign"))
        self._sign("foreign", self.folder / "foreign-ca")
        self.revoke("former", "left")
        self._roster.write_text(yaml.safe_dump({"federation": AGREED}, sort_keys=False), encoding="utf-8")
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
                content = {"server": {**OWN, **own, "listen": self._listen, "revoked": str(self.revoked)}}
            else:
                content = {"parties": {name: {**EVERY, **own, "connect": self._dials[name], "chaos": {"delay": PACE}}}}
            text = yaml.safe_dump({"federation": agreed, **content}, sort_keys=False)
            self.file(name).write_text(text, encoding="utf-8")

    def control(self, rounds: int) -> Path:
        path = self.folder / "control.yaml"
        tree = {"federation": {**AGREED, "rounds": rounds}, "server": OWN, "every_party": EVERY}
        path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        return path

    def entries(self) -> int:
        return len(json.loads(self.revoked.read_text(encoding="utf-8"))["revoked"])

    def _sign(self, name: str, ca: Path, *options: str) -> None:
        keys, role = self.keys(name), SERVER if name == SERVER else "party"
        signed = keys / "cert.pem"
        colonnade("certs", "sign", keys / "request.csr", "--ca", ca, "--out", signed, "--role", role, *options)
        shutil.copy(ca / "cert.pem", keys / "ca.pem")

    def _pin(self, names: tuple[str, ...], *options: str) -> None:
        certificates = [f"{name}={self.keys(name) / 'cert.pem'}" for name in names]
        colonnade("certs", "pin", self._roster, *certificates, "--ca", self._ca / "cert.pem", *options)
