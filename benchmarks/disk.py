"""Tables on disk: memory of a party's process, its batches and its rounds, against a table in memory.

A federation of a party with a table of 50 numbers, another with one column, and a server trains as `up` starts it, and
its processes' anonymous memory (RssAnon) is watched. Then another process reads batches of 1024 rows from the file that
the party left: cold, when the system has forgotten it, and cached, in turn with `np.take` on an array in memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open

from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import ROOT, finished, started
from colonnade.common.config.run_options import BlockShuffle, Shuffle
from colonnade.common.data.columns.row_store import RowStore
from colonnade.common.data.columns.scale import Columns, Scaler
from colonnade.common.data.rows import Batches
from colonnade.common.models.backprop import backprop
from colonnade.common.run.device import torch_threads

SIZES, LARGE, COLUMNS, BATCH = (100_000, 1_000_000), 20_000_000, 50, 1024
PIECE = 1_000_000  # rows of a file
ORDERS: Mapping[str, Shuffle] = {"blocks": BlockShuffle(), "full": True}
EVALUATED = 2048  # rows
ROUNDS = 200
_TURNS, _WARM = 400, 20


def main() -> list[Figure]:
    """Memory, and milliseconds of a batch and a round, of 100,000 and of a million rows."""
    return [figure for rows in SIZES for figure in measured(rows)]


def large() -> list[Figure]:
    """The same of 20 million rows: 4 GB of numbers. It needs 30 GB of disk."""
    return measured(LARGE)


def measured(rows: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder, rows)
        memory, seconds = _trained(folder, rows)
        argv = [sys.executable, "-m", "benchmarks.disk", str(folder / "run/parties/bank/tables/rows.safetensors")]
        read = json.loads(subprocess.run([*argv, str(rows)], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    said = f"{rows:,} rows"
    figures = [
        Figure(f"{said}: largest anonymous memory of the party", memory["bank"], 600.0, "MB"),
        Figure(f"{said}: largest anonymous memory of the server", memory["server"], None, "MB"),
        Figure(f"{said}: launch to first round, with reading, encoding and writing", seconds, None, "s"),
        Figure(f"{said}: checking of the file where a run resumes", read["opened"], None, "s"),
    ]
    for name in ORDERS:
        batch, kept, floor, step, kept_step = read[name]
        figures += [
            Figure(f"{said}, {name}: cached batch", batch, None, "ms", floor, "np.take in memory"),
            Figure(f"{said}, {name}: cached batch", batch, None, "ms", kept, "store: memory"),
            Figure(f"{said}, {name}: cached round", step, 1.5, "ms", kept_step, "store: memory"),
            Figure(f"{said}, {name}: cold batch", read[f"{name}, cold"], 3.0 if name == "blocks" else None, "ms"),
        ]
    return figures


def write(folder: Path, rows: int) -> None:
    """Tables in Parquet, in files of a million rows: `bank`, `shop` and the labels."""
    draws = np.random.default_rng(0)
    for place, begin in enumerate(range(0, rows, PIECE)):
        count = min(PIECE, rows - begin)
        values = draws.standard_normal((COLUMNS + 1, count), np.float32)
        tables = {
            "bank": {f"c{number}": values[number] for number in range(COLUMNS)},
            "shop": {"c": values[COLUMNS]},
            "labels": {"y": (values[0] + values[COLUMNS] > 0).astype(np.int8)},
        }
        for name, columns in tables.items():
            (folder / name).mkdir(exist_ok=True)
            file = folder / name / f"{place:04}.parquet"
            pq.write_table(pa.table(columns), file, compression="none", use_dictionary=False)


def tree(folder: Path, rows: int) -> dict[str, object]:
    """The configuration: rounds over batches by blocks."""
    source = {"source": "parquet", "store": "disk", "scale": "standard"}
    return {
        "federation": {
            "id": "disk", "protocol": "split", "parties": ["bank", "shop"], "classes": 2, "rounds": ROUNDS,
            "batch": BATCH, "shuffle": {}, "stop": "none", "evaluate": {"every": ROUNDS},
            "rows": {"validation": min(EVALUATED, rows // 10), "test": min(EVALUATED, rows // 10)},
            "timeouts": {"away": 3600, "answer": 3600},  # a party writes its rows after it has joined
        },
        "server": {"labels": {"source": "parquet", "path": str(folder / "labels"), "label": "y"}},
        "parties": {name: {"data": {**source, "path": str(folder / name)}} for name in ("bank", "shop")},
    }  # fmt: skip


def _trained(folder: Path, rows: int) -> tuple[dict[str, float], float]:
    """Megabytes of each member's process at most, and seconds to the first round."""
    most = dict[int, int]()
    with started(tree(folder, rows), out=folder / "run") as (process, out):
        while process.poll() is None:
            for member in psutil.Process(process.pid).children(recursive=True):
                most[member.pid] = max(most.get(member.pid, 0), anonymous(member.pid))
            time.sleep(0.05)
        summary = finished(process, out).summary
    _fork_server, server, bank, *_ = (size / 1e3 for _, size in sorted(most.items()))
    return {"server": server, "bank": bank}, float(summary["seconds_to_first_round"])


def anonymous(process: int) -> int:
    """RssAnon in kB, 0 if the process has ended."""
    try:
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _read(path: Path, rows: int) -> dict[str, object]:
    """Seconds of opening, and by order of the rows the milliseconds of batches and rounds: see `measured`."""
    with safe_open(path, "np") as file:
        key = file.metadata()["key"]
    begin = time.perf_counter()
    stored = RowStore(path, path.parent).opened(key, ())
    found: dict[str, object] = {"opened": time.perf_counter() - begin}
    assert stored is not None
    train = rows - 2 * min(EVALUATED, rows // 10)
    order = torch.empty(rows, dtype=torch.int64)
    order[_places(path, rows)] = torch.arange(rows)  # training rows first
    batches = {name: Batches(train, BATCH, 0, shuffle) for name, shuffle in ORDERS.items()}
    for name, of in batches.items():
        cold = RowStore(path, path.parent).opened(key, ())
        assert cold is not None
        _forget(path)
        many = [order[of.of(round)] for round in range(1, 1 + min(ROUNDS if name == "blocks" else 20, of.per_epoch))]
        each = iter(many)
        spent = in_turn(lambda: cold[next(each)], repeats=len(many))[0]  # noqa: B023
        found[f"{name}, cold"] = 1e3 * mean(spent)
    loaded = np.fromfile(path, np.float32, rows * COLUMNS, offset=4096).reshape(rows, COLUMNS)  # in the file's order
    kept = Columns(torch.from_numpy(loaded), Scaler.none())
    tower = backprop(torch.nn.Sequential(torch.nn.Linear(COLUMNS, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)))
    gradient = torch.randn(BATCH, 64) / BATCH

    def step(x: torch.Tensor) -> None:
        tower.forward(x)
        tower.backward(gradient.clone())

    for name, of in batches.items():
        many = [of.of(turn % (of.per_epoch - 1) + 1) for turn in range(_TURNS + _WARM)]

        def of_each(call: Callable[[torch.Tensor], object], many: list[torch.Tensor] = many) -> Callable[[], object]:
            each = iter(many)
            return lambda: call(next(each))

        with torch_threads(1):
            spent = [
                *in_turn(
                    of_each(lambda at: stored[order[at]]),
                    of_each(lambda at: kept[at]),
                    of_each(lambda at: np.take(loaded, at.numpy(), axis=0)),
                    repeats=_TURNS, warm=_WARM,
                ),
                *in_turn(
                    of_each(lambda at: step(stored[order[at]])), of_each(lambda at: step(kept[at])),
                    repeats=_TURNS, warm=_WARM,
                ),
            ]  # fmt: skip
        found[name] = [1e3 * median(each) for each in spent]
    return found


def _places(path: Path, rows: int) -> torch.Tensor:
    """Where each row stands in the file."""
    with safe_open(path, "pt") as file:
        found: torch.Tensor = file.get_tensor("places")
    assert len(found) == rows
    return found.long()


def _forget(path: Path) -> None:
    """Leaves no row in the system's cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    print(json.dumps(_read(Path(sys.argv[1]), int(sys.argv[2]))))
