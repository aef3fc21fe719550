"""Tables of a million rows: reading and encoding against pyarrow's own parser, and `up` to the first round.

A party's CSV file has a key and twenty columns of numbers, 197 MB. Reading is measured in processor time of all threads
of the process: the floor is `pyarrow.csv.read_csv` of the same file, with its own choice of threads. `up` matches rows
by their order (`align: none`) and compares the keys of both parties with the labels'.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import torch

from benchmarks.report import Figure, in_turn
from benchmarks.runs import run
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.features import Features
from colonnade.common.data.sources import load_features, prepare
from colonnade.common.data.table_cache import TableCache
from colonnade.common.parsing.file import parse

ROWS, COLUMNS = 1_000_000, 20
_REPEATS = 3
_RATIO, _COPY, _SECONDS = 3.0, 0.5, 12.0


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_tables(base, ROWS)
        return [*_reading(base), _launch(base)]


def write_tables(folder: Path, rows: int) -> None:
    """Writes party1.csv and party2.csv with the same keys, and server.csv with labels."""
    draws = np.random.default_rng(0)
    keys = pa.array(np.char.mod("c%07d", np.arange(rows)))
    plain = pa_csv.WriteOptions(quoting_style="none")
    total = np.zeros(rows)
    for party in ("party1", "party2"):
        values = draws.normal(size=(rows, COLUMNS)).round(6)
        total += values[:, :3].sum(1)
        columns = {f"{party}_{place}": values[:, place] for place in range(COLUMNS)}
        pa_csv.write_csv(pa.table({"key": keys, **columns}), folder / f"{party}.csv", plain)
    labels = pa.array(np.where(total > 0, "yes", "no"))
    pa_csv.write_csv(pa.table({"key": keys, "label": labels}), folder / "server.csv", plain)


_TREE = {
    "federation": {
        "id": "tables", "protocol": {"name": "split", "embedding": 16}, "parties": 2, "classes": 2, "rounds": 1,
        "batch": 1024, "rows": {"validation": 2000, "test": 2000},
    },
    "server": {"labels": {"source": "csv", "path": "server.csv", "key": "key", "label": "label"}},
    "parties": {f"party{n}": {"data": {"source": "csv", "path": f"party{n}.csv", "key": "key"}} for n in (1, 2)},
}  # fmt: skip


def _reading(base: Path) -> list[Figure]:
    config = parse(_TREE)
    federation, data = config.federation, config.parties["party1"].data
    place, copies = federation.party_index("party1"), TableCache(base, writes=True)

    def encoded(cache: TableCache | None = None) -> Features:
        features = load_features(data, place, base, cache)
        schedule = Schedule(federation, len(features.values), 0)
        prepare(data, features, schedule.partition.train, federation.seed, "party1")
        return features

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a party's process
    try:
        load_features(data, place, base, copies)
        copies.keep()
        calls = (lambda: pa_csv.read_csv(base / "party1.csv"), encoded, lambda: encoded(TableCache(base)))
        floor, whole, copied = map(min, in_turn(*calls, clock=time.process_time, repeats=_REPEATS))
    finally:
        torch.set_num_threads(threads)
    name, what = "pyarrow.csv.read_csv", f"{ROWS} rows of {COLUMNS} numbers and a key"
    return [
        Figure(f"{what}, read and encoded", whole, _RATIO, "s", floor, name),
        Figure(f"{what}, encoded from the run's copy", copied, _COPY * _RATIO, "s", floor, name),
    ]


def _launch(base: Path) -> Figure:
    begun = time.time()
    first = run(_TREE, base=base).rounds()[0]["time"] - begun
    return Figure("two parties of them and the labels, `up` to the first round", first, _SECONDS, "s")
