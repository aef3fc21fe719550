"""Predictions for 100,000 ids among three parties: ours against the work that no system could avoid.

The floor is the parties' forward passes, one after the other on all cores, a bare gRPC echo of the same bytes, and
Python's csv reading the ids and writing the lines, all in this run. Joining is excluded on both sides.
"""

from __future__ import annotations

import asyncio
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml

from benchmarks import exchange
from benchmarks.report import Figure
from benchmarks.runs import ROOT
from colonnade.cli.run.predict import answer_file
from colonnade.common.config.models import MlpConfig
from colonnade.common.crypto.pki.federation import make_federation
from colonnade.common.models.bottom import bottom_model
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.launcher.predictions import opened
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.terms import PredictionTerms

IDS, PARTIES, COLUMNS, HIDDEN, WIDTH = 100_000, 3, 20, 128, 64
BLOCK = 4096
REPEATS = 5


def main() -> list[Figure]:
    """The best of several files, and of as many runs of each part of the floor: other load delays some."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        command = [sys.executable, "-m", "colonnade", "up", str(folder / "run.yaml"), "--out", str(folder / "run")]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        ours = _ask(folder)
        floor = _forward() + _echo(folder) + _best(lambda: _csv(folder))
    return [Figure("predict 100,000 ids, 3 parties", ours, 1.5, "s", floor, "forward + echo + csv")]


def write(folder: Path, count: int = IDS) -> None:
    """The tables of a run among three parties, its configuration, and a file of all ids."""
    draw = np.random.default_rng(0)
    ids = [f"person-{number:06}" for number in draw.permutation(count)]
    tree = {
        "federation": {
            "id": "predict", "protocol": {"name": "split", "embedding": WIDTH}, "parties": PARTIES, "classes": 2,
            "rounds": 1, "batch": min(BLOCK, count // 2),
        },
        "server": {"labels": {"source": "csv", "path": "labels.csv", "id": "id", "label": "y"}},
        "parties": {},
    }  # fmt: skip
    _table(folder / "labels.csv", ids, ["y"], draw.integers(0, 2, (count, 1)))
    names = [f"x{column}" for column in range(COLUMNS)]
    for number in range(1, PARTIES + 1):
        _table(folder / f"{number}.csv", ids, names, draw.normal(size=(count, COLUMNS)).round(4))
        data = {"source": "csv", "path": f"{number}.csv", "id": "id"}
        tree["parties"][f"party{number}"] = {"data": data, "model": {"name": "mlp", "hidden": HIDDEN}}
    (folder / "run.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    with (folder / "ids.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id"], *([id] for id in sorted(ids))])


def _table(path: Path, ids: list[str], names: list[str], values: np.ndarray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *names])
        writer.writerows([id, *row] for id, row in zip(ids, values.tolist(), strict=True))


def _ask(folder: Path) -> float:
    times: list[float] = []

    async def work(model: Model) -> None:
        await model.say(f"person-{number:06}" for number in range(BLOCK))  # everyone is there, and warm
        for number in range(REPEATS):
            begin = time.perf_counter()
            await answer_file(PredictionIds(folder / "ids.csv"), IDS, folder / f"out{number}.csv", "refuse", model)
            times.append(time.perf_counter() - begin)

    with opened(folder / "run", None, PredictionTerms()) as run:
        run.ask(work)
    return min(times)


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _forward() -> float:
    """On one processor or on all, whichever is quicker: if one thread is delayed, all wait for it."""
    config, threads = MlpConfig(hidden=HIDDEN, embedding=WIDTH), torch.get_num_threads()
    models = [bottom_model("floor", config, (COLUMNS,), WIDTH, torch.Generator(), Path()) for _ in range(PARTIES)]
    rows = torch.randn(IDS, COLUMNS)

    def passes() -> None:
        with torch.no_grad():
            for model in models:
                for block in torch.split(rows, BLOCK):
                    model(block)

    try:
        on_all = _best(passes)
        torch.set_num_threads(1)
        return min(on_all, _best(passes))
    finally:
        torch.set_num_threads(threads)


def _echo(folder: Path) -> float:
    keys = folder / "keys"
    make_federation(keys, ["party"])
    both_ways = 2 * exchange.ROWS * exchange.WIDTH * 4
    times = round(PARTIES * IDS * (WIDTH * 4 + 8) / both_ways)
    peer = exchange.Peer("bare", keys)
    try:
        with asyncio.Runner() as loop:
            end = exchange.Bare(keys, peer.port)
            loop.run(end.open())
            loop.run(end.exchange(10))
            seconds = _best(lambda: loop.run(end.exchange(times)))
            loop.run(end.close())
    finally:
        peer.end()
    return seconds


def _csv(folder: Path) -> None:
    with (folder / "ids.csv").open(newline="", encoding="utf-8") as file:
        ids = [row[0] for row in csv.reader(file)][1:]
    with (folder / "floor.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([id, "1", 0.123456, 0.876544] for id in ids)
