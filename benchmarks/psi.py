"""An alignment against its unavoidable operations, and a whole one among processes.

The floor of all lists is a hash to the curve of every key and K^2 + K + 2 exponentiations of a list, one by every party
for every list and two by the server for its own, measured in the same run and on the same thread. It is compared with
the processor time of all members on the virtual clock: hashing, raising, shuffling, checking, comparing, and undoing
the shuffles. Then 100,000 keys among a server and three parties over mutual TLS, as `up` starts them, from the first
count to the last file.
"""

from __future__ import annotations

import asyncio
import csv
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import run
from colonnade.client.alignment.matching import Matching
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.crypto.pki.federation import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.parsing.file import parse
from colonnade.server.alignment.relay import Aligning

PARTIES = 3
RAISED = PARTIES**2 + PARTIES + 2
KEYS, ALL_KEYS = 5000, 100_000
SHARE = 0.9
RATIO, SECONDS = 1.5, 60.0
_NONE: Mapping[str, Identity] = MappingProxyType({})


def main() -> list[Figure]:
    return [per_key(KEYS), among_processes(ALL_KEYS)]


def per_key(keys: int) -> Figure:
    """Processor time per key in an alignment of `keys` keys, against the bare operations."""
    people, lists = [b"person %d" % n for n in range(keys)], PARTIES + 1
    floor = _processor(lambda: _bare(people)) / lists
    agreed = parse(_tree(PARTIES)).federation
    ours = _processor(lambda: inprocess.run_virtual(_align(agreed, RowKeys(tuple(people)))))
    micro = 1e6 / keys
    what = f"alignment of {keys} keys, {PARTIES} parties and the server"
    return Figure(
        what, micro * ours / lists, RATIO, "us a key", micro * floor, f"a hash and {RAISED / lists} exponentiations"
    )


def among_processes(keys: int) -> Figure:
    """Seconds that an alignment takes among processes on this machine, as the server measures them."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _write_tables(base, keys)
        (base / "federation.yaml").write_text(yaml.safe_dump(_tree(PARTIES)), encoding="utf-8")
        events = run(str(base / "federation.yaml")).events
    aligned = next(event for event in events if event["kind"] == "aligned")
    what = f"{keys} keys among {PARTIES} parties and the server, processes on {os.cpu_count()} cores"
    return Figure(what, aligned["seconds"], SECONDS, "s")


def _bare(people: list[bytes]) -> None:
    for _ in range(PARTIES + 1):
        elements = hash_to_curve(people, b"benchmark")
    for _ in range(RAISED):
        elements = Secret(os.urandom(32)).raise_all(elements)


def _processor(call: Callable[[], object]) -> float:
    return in_turn(call, clock=time.process_time, repeats=1)[0][0]


def _write_tables(folder: Path, keys: int) -> None:
    draw = random.Random(0)
    everyone = [f"person-{n:08}" for n in range(round(keys / SHARE))]
    for member in (SERVER, *(f"party{n + 1}" for n in range(PARTIES))):
        with (folder / f"{member}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["who", "value"])
            lines.writerows((who, draw.randrange(2)) for who in draw.sample(everyone, keys))


def _tree(parties: int) -> dict[str, Any]:
    return {
        "federation": {
            "id": "psi", "protocol": {"name": "split", "embedding": 4}, "parties": parties, "classes": 2, "rounds": 1,
            "batch": 256, "align": "psi",
        },
        "server": {"labels": {"source": "csv", "path": "server.csv", "label": "value", "id": "who"}},
        "parties": {
            f"party{n + 1}": {"data": {"source": "csv", "path": f"party{n + 1}.csv", "id": "who"}}
            for n in range(parties)
        },
    }  # fmt: skip


CHECKED, TURNS = 5000, 3
RATIOS: dict[AlignChecks, float] = {"signed": 1.1, "planted": 1.1, "proofs": 4}


def checks() -> list[Figure]:
    """An alignment with checks against the same one without: processor time of all members, in turns, in one process.

    The members have certificates, so that every pledge is signed and verified. Each mode is compared with the runs
    without checks before and after it.
    """
    people = RowKeys(tuple(b"person %d" % n for n in range(CHECKED)))
    with tempfile.TemporaryDirectory() as folder:
        agreed, identities = _certified(Path(folder))
        return [_against_none(agreed, identities, people, checks, bound) for checks, bound in RATIOS.items()]


def _against_none(
    agreed: FederationConfig, identities: dict[str, Identity], people: RowKeys, checks: AlignChecks, bound: float
) -> Figure:
    seconds: dict[AlignChecks, list[float]] = {"none": [], checks: []}
    for _ in range(TURNS):
        for mode, taken in seconds.items():
            gc.collect()
            taken.append(_processor(lambda: inprocess.run_virtual(_align(agreed, people, mode, identities))))  # noqa: B023
    ours, floor = (1e6 * median(seconds[mode]) / CHECKED / (PARTIES + 1) for mode in (checks, "none"))
    what = f"alignment of {CHECKED} keys, {PARTIES} parties and the server, align_checks: {checks}"
    return Figure(what, ours, bound, "us a key", floor, "without checks")


async def _align(
    agreed: FederationConfig, keys: RowKeys, checks: AlignChecks = "none", identities: Mapping[str, Identity] = _NONE
) -> None:
    names, session = list(agreed.names), Session()
    cohort, links = inprocess.connect(names, alignment_kinds(agreed), alignment_limits(len(names) + 1))
    parties = [
        Matching(name, agreed, PolicyConfig(), keys, session, links[name], checks=checks, identity=identities.get(name))
        for name in names
    ]
    await asyncio.gather(Aligning(agreed, keys, session, cohort, checks=checks)(), *(party() for party in parties))


def _certified(folder: Path) -> tuple[FederationConfig, dict[str, Identity]]:
    agreed = parse(_tree(PARTIES)).federation
    pins = make_federation(folder, list(agreed.names))
    agreed = agreed.model_copy(update={"server": pins.pop("server"), "parties": pins})
    return agreed, {name: load_identity(folder / name) for name in pins}
