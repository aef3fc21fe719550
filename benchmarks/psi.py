"""An alignment against its unavoidable operations, and a whole one among processes.

The floor of all lists is a hash to the curve of every key and K^2 + K + 2 exponentiations of a list, one by every party
for every list and two by the server for its own, measured in the same run and on the same thread. It is compared with
the processor time of all members on the virtual clock: hashing, raising, shuffling, checking, comparing, and undoing
the shuffles. Then 100,000 keys among a server and three parties over mutual TLS, as `up` starts them, from the first
count to the last file, against the same operations in as many processes as there are processors, before and after.
"""

from __future__ import annotations

import asyncio
import csv
import gc
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import psutil

from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import ROOT, run
from colonnade.client.alignment.matching import Matching
from colonnade.common.alignment.exponent import MakeExponent
from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.alignment.store import AlignmentStore
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto import raising
from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.parsing.file import parse
from colonnade.server.alignment.relay import Aligning

PARTIES = 3
RAISED = PARTIES**2 + PARTIES + 2
KEYS, ALL_KEYS = 5000, 100_000
SHARE = 0.9
RATIO = 1.25
_NONE: Mapping[str, Identity] = MappingProxyType({})
_FRESH: Mapping[str, MakeExponent] = MappingProxyType({})


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
    floor = [_bare_on_all(keys)]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _write_tables(base, keys)
        events = run(_tree(PARTIES), base=base).events
    aligned = next(event for event in events if event["kind"] == "aligned")
    floor.append(_bare_on_all(keys))
    what = f"{keys} keys among {PARTIES} parties and the server, processes on {os.cpu_count()} cores"
    return Figure(what, aligned["seconds"], RATIO, "s", sum(floor) / 2, "the bare operations on as many")


def _bare_on_all(keys: int) -> float:
    """Seconds of the bare operations of all lists, shared by one process a processor."""
    count = os.cpu_count() or 1
    code = f"from benchmarks.psi import bare_share; bare_share({keys // count})"
    shares = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(count)]
    return max(float(share.communicate()[0]) for share in shares)


def bare_share(keys: int) -> None:
    """Prints the seconds of the bare operations on this many keys of each list."""
    people, began = [b"person %d" % n for n in range(keys)], time.perf_counter()
    _bare(people)
    print(time.perf_counter() - began)


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


SMALL, LARGE = 10_000, 100_000


def small() -> list[Figure]:
    """A new small list against a large one that was aligned before, and whose elements are kept.

    The floor is what the small list costs: a hash and three exponentiations of each key. The large list is shuffled,
    looked up, sent and compared again.
    """
    agreed = parse(_tree(1)).federation
    large = RowKeys(tuple(b"person %d" % n for n in range(LARGE)))
    lists = [RowKeys(tuple(b"person %d" % n for n in range(at, at + SMALL))) for at in (0, LARGE - SMALL // 2)]
    with tempfile.TemporaryDirectory() as folder:
        store = partial(AlignmentStore, roster=bytes(32), days=30)
        first, again = (
            _processor(lambda: _align_kept(agreed, {SERVER: own, "party1": large}, store, Path(folder)))  # noqa: B023
            for own in lists
        )

    def bare() -> None:
        elements = hash_to_curve([*lists[1].values], b"benchmark")
        for _ in range(3):
            elements = Secret(os.urandom(32)).raise_all(elements)

    what = f"{SMALL} new keys against {LARGE} that were aligned before, two members"
    return [
        Figure(what, again, None, "s", _processor(bare), "a hash and 3 exponentiations of the new keys"),
        Figure(f"{what}: each of the {LARGE}", 1e6 * (again - _processor(bare)) / LARGE, None, "us"),
        Figure(f"the first alignment of {SMALL} with {LARGE}, two members", first, None, "s"),
    ]


def _align_kept(
    agreed: FederationConfig, keys: Mapping[str, RowKeys], store: Callable[..., AlignmentStore], folder: Path
) -> None:
    keeping = {name: Keeping(store(folder / name / "kept"), roster=agreed.names) for name in keys}
    inprocess.run_virtual(_align(agreed, keys, exponents={name: own.exponent for name, own in keeping.items()}))
    for own in keeping.values():
        own.close(complete=True)


MANY = (100_000, 1_000_000, 10_000_000)


def curve() -> list[Figure]:
    """Everything but hashes and exponentiations, which are stubbed: processor time and memory by the length of lists.

    Two members in one process of its own; tables take no memory.
    """
    figures = []
    for keys in MANY:
        code = f"from benchmarks.psi import stubbed; stubbed({keys})"
        said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        seconds, peak = map(float, said.split())
        what = f"alignment of {keys} keys, one party and the server, hashes and exponentiations stubbed"
        figures += [
            Figure(what, 1e6 * seconds / keys / 2, None, "us a key"),
            Figure(f"{what}: anonymous memory, both members", peak / 2**20, 64, "MiB"),
        ]
    return figures


def stubbed(keys: int) -> None:
    """Prints seconds of processor time, and by how many bytes the alignment raises this process's memory at most."""
    Secret.raise_all, Secret.inverse = _masked, lambda own: own  # type: ignore[method-assign]
    raising.hash_to_curve = lambda some, tag: b"".join(hashlib.sha256(tag + key).digest() for key in some)
    agreed = parse(_tree(1)).federation
    lists = {name: RowKeys(_People(keys, at)) for at, name in enumerate((SERVER, "party1"))}
    with _peak() as peak:
        began = time.process_time()
        inprocess.run_virtual(_align(agreed, lists))
        print(time.process_time() - began, peak[0])


def _masked(own: Secret, elements: bytes) -> bytes:
    """Commutes as exponentiations do, and is its own inverse."""
    found: bytes = (np.frombuffer(elements, np.uint64).reshape(-1, 4) ^ np.frombuffer(own.scalar, np.uint64)).tobytes()
    return found


@dataclass(frozen=True)
class _People:
    """Keys by row, of which two members share nine tenths, that take no memory."""

    rows: int
    member: int

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int, /) -> bytes:
        return b"person %d" % (row + self.member * self.rows // 10)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(self.rows))


@contextmanager
def _peak() -> Iterator[Sequence[int]]:
    """The most by which anonymous memory grows meanwhile, in bytes."""
    found, over, process = [0], threading.Event(), psutil.Process()

    def used() -> int:
        memory = process.memory_info()
        return int(memory.rss - memory.shared)

    before = used()

    def watch() -> None:
        while not over.wait(0.02):
            found[0] = max(found[0], used() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


async def _align(
    agreed: FederationConfig,
    keys: RowKeys | Mapping[str, RowKeys],
    checks: AlignChecks = "none",
    identities: Mapping[str, Identity] = _NONE,
    exponents: Mapping[str, MakeExponent] = _FRESH,
) -> None:
    names, session = list(agreed.names), Session()
    own = keys if isinstance(keys, Mapping) else dict.fromkeys((SERVER, *names), keys)
    cohort, links = inprocess.connect(names, alignment_kinds(agreed), alignment_limits(len(names) + 1))
    parties = [
        Matching(
            name, agreed, PolicyConfig(), own[name], session, links[name], checks=checks,
            identity=identities.get(name), exponent=exponents.get(name),
        )
        for name in names
    ]  # fmt: skip
    server = Aligning(agreed, own[SERVER], session, cohort, checks=checks, exponent=exponents.get(SERVER))
    await asyncio.gather(server(), *(party() for party in parties))


def _certified(folder: Path) -> tuple[FederationConfig, dict[str, Identity]]:
    agreed = parse(_tree(PARTIES)).federation
    pins = make_federation(folder, list(agreed.names))
    agreed = agreed.model_copy(update={"server": pins.pop("server"), "parties": pins})
    return agreed, {name: load_identity(folder / name) for name in pins}
