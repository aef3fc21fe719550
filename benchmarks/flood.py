"""A run of the demo while strangers flood the server's port, against the same flood at another port.

Five floods, each possible from a single machine: 500 silent connections a second, 500 a second that do not speak TLS,
200 streams a second with a revoked certificate, and, with that certificate, 1 MB a second of frames full of two-byte
parcels or of empty Hellos. The other port is that of a bare gRPC server with the same certificates, so that the flooder
uses as much of the machine. Server and parties are processes, as in a federation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.report import Figure, median
from benchmarks.runs import ROOT, free_port
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.run.json_text import read_lines

KINDS = ("silent", "plain", "revoked", "parcels", "hellos")
SLOWER, GROWTH, LOG = 1.5, 50.0, 1.0  # factor, MB, MB: limits for the effect of a flood
PARTIES = ("party1", "party2", "party3", "party4")
EPOCHS, PATIENCE = 30, 180.0
WARM = 20  # rounds before the flood begins


@dataclass(frozen=True)
class Seen:
    """Effect of a flood on a run: seconds of a round, and growth of the server's memory and its log in MB."""

    status: str
    round: float
    memory: float
    log: float


def main() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="flood-") as scratch:
        keys = Path(scratch) / "keys"
        pins = make_federation(keys, [*PARTIES, "former"])
        RevocationList.create(Path(scratch) / "revoked.json").revoke(pins.pop("former"), "left")
        for kind in KINDS:
            (Path(scratch) / kind).mkdir()
            hit = flooded(Path(scratch) / kind / "hit", keys, pins, kind, ours=True)
            control = flooded(Path(scratch) / kind / "control", keys, pins, kind, ours=False)
            figures += [
                Figure(f"{kind}: runs that completed", hit.status == "completed", 1, "of 1", least=True),
                Figure(f"{kind}: a round", 1e3 * hit.round, SLOWER, "ms", 1e3 * control.round, "flood elsewhere"),
                Figure(f"{kind}: the server's memory grew more by", hit.memory - control.memory, GROWTH, "MB"),
                Figure(f"{kind}: its log and events grew more by", hit.log - control.log, LOG, "MB"),
            ]
    return figures


def flooded(folder: Path, keys: Path, pins: dict[str, str], kind: str, *, ours: bool) -> Seen:
    """One run with a flood of our port or of another from its 20th round on."""
    folder.mkdir()
    port = free_port()
    files = _write(folder, keys, dict(pins), port)
    with ExitStack() as stack:
        processes = []
        for name, file in files.items():
            command = ("server" if name == "server" else "client", file, "--out", str(folder / name))
            processes.append(stack.enter_context(_process(folder / f"{name}.log", "colonnade", *command)))
        server = processes[0]
        events = folder / "server" / "events.jsonl"
        _await(server, lambda: len(_rounds(events)) >= WARM)
        target = port if ours else stack.enter_context(_sink(folder, keys))
        stack.enter_context(_process(folder / "flooder.log", "benchmarks.flooders", kind, str(target), str(keys)))
        begun, least, most = time.time(), _memory(server), 0.0
        while server.poll() is None:
            most = max(most, _memory(server))
            if time.time() - begun > PATIENCE:
                return Seen("hangs", float("inf"), most - least, _words(folder))
            time.sleep(0.1)
        return Seen(_status(folder), _pace(_rounds(events), begun), most - least, _words(folder))


def _write(folder: Path, keys: Path, pins: dict[str, str], port: int) -> dict[str, str]:
    tree: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / "demo.yaml").read_text(encoding="utf-8"))
    agreed, every = tree["federation"], tree.pop("every_party")
    agreed |= {"epochs": EPOCHS, "server": pins.pop("server"), "parties": pins}
    agreed["checkpoint"] = {"rounds": 10}
    address = f"127.0.0.1:{port}"
    own = {"identity": str(keys / "server"), "listen": address, "revoked": str(keys.parent / "revoked.json")}
    files = {"server": {"federation": agreed, "server": {**tree["server"], **own}}}
    for name in PARTIES:
        party = {**every, "identity": str(keys / name), "connect": address}
        files[name] = {"federation": agreed, "parties": {name: party}}
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return {name: str(folder / f"{name}.yaml") for name in files}


@contextmanager
def _process(log: Path, module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=words, stderr=words, env=environment
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def _sink(folder: Path, keys: Path) -> Iterator[int]:
    log = folder / "sink.log"
    with _process(log, "benchmarks.flooders", "sink", "0", str(keys)) as process:
        _await(process, lambda: log.read_text(encoding="utf-8").strip().isdigit())
        yield int(log.read_text(encoding="utf-8"))


def _await(process: subprocess.Popen[bytes], happened: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"it did not begin: {process.args}")
        time.sleep(0.05)


def _rounds(events: Path) -> list[float]:
    return [event["time"] for event in read_lines(events) if event["kind"] == "round"] if events.exists() else []


def _pace(rounds: list[float], begun: float) -> float:
    under = [time for time in rounds if time >= begun + 1]  # the flooder takes a moment to start
    return median([b - a for a, b in pairwise(under)]) if len(under) > 1 else float("inf")


def _status(folder: Path) -> str:
    summary = folder / "server" / "summary.json"
    return str(json.loads(summary.read_text(encoding="utf-8"))["status"]) if summary.exists() else "no summary"


def _memory(server: subprocess.Popen[bytes]) -> float:
    try:
        return psutil.Process(server.pid).memory_info().rss / 1e6
    except psutil.NoSuchProcess:
        return 0.0


def _words(folder: Path) -> float:
    files = (folder / "server.log", folder / "server" / "events.jsonl")
    return sum(file.stat().st_size for file in files) / 1e6
