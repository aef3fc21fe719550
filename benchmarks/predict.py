"""Predictions for 100,000 ids among three parties: ours against the work that no system could avoid.

The floor is the parties' forward passes, one after the other on all cores, a bare gRPC echo of the same bytes, and
Python's csv reading the ids and writing the lines, all in this run. Joining is excluded on both sides.
"""

from __future__ import annotations

import asyncio
import csv
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from benchmarks import exchange
from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import ROOT, free_port, run
from colonnade.cli.run.predict import answer_file
from colonnade.common.config.models import MlpConfig
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.models.build import bottom_model
from colonnade.common.wire._generated.serving_pb2 import PredictReply, PredictRequest
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.launcher.predictions import opened
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.serving.grpc_service import METHOD
from colonnade.server.prediction.terms import PredictionTerms

IDS, PARTIES, COLUMNS, HIDDEN, WIDTH = 100_000, 3, 20, 128, 64
BLOCK = 4096
REPEATS = 5


def main() -> list[Figure]:
    """The best of several files, and of as many runs of each part of the floor: other load delays some."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(write(folder), out=folder / "run", base=folder)
        ours = _ask(folder)
        floor = _forward() + _echo(folder) + _best(lambda: _csv(folder))
    return [Figure("predict 100,000 ids, 3 parties", ours, 1.5, "s", floor, "forward + echo + csv")]


def write(folder: Path, count: int = IDS) -> dict[str, Any]:
    """The tables of a run among three parties and a file of all ids; returns its configuration."""
    draw = np.random.default_rng(0)
    ids = [f"person-{number:06}" for number in draw.permutation(count)]
    tree: dict[str, Any] = {
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
    _table(folder / "ids.csv", sorted(ids), [], np.empty((count, 0)))
    return tree


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
    return min(in_turn(call, repeats=REPEATS)[0])


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
    times = round(PARTIES * IDS * (WIDTH * 4 + 8) / (2 * exchange.ROWS * exchange.WIDTH * 4))
    with _bare(keys, exchange.ROWS * exchange.WIDTH * 4 + 60) as echo:
        echo(10)
        return _best(lambda: echo(times))


def _csv(folder: Path) -> None:
    with (folder / "ids.csv").open(newline="", encoding="utf-8") as file:
        ids = [row[0] for row in csv.reader(file)][1:]
    with (folder / "floor.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([id, "1", 0.123456, 0.876544] for id in ids)


SERVED = 2000
REQUESTS, BLOCKS = 40, 12
PATIENCE = 120.0  # seconds until the parties are present
BOUND = 5.0  # milliseconds beyond the bare round trip

Ask = Callable[[str], None]


def serve() -> list[Figure]:
    """One id after the other, asked of `colonnade serve` over HTTP/JSON and gRPC, against a bare round trip to a party.

    The service and its three parties are processes; the caller keeps its connection. The floor is a bare gRPC echo
    between the server and one party, with mutual TLS and the bytes of a party's response, measured in turn with the
    requests.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(write(folder, SERVED), out=folder / "run", base=folder)
        with (
            _serving(folder / "run") as (web, remote, token),
            _bare(folder / "keys", WIDTH * 4 + 60) as bare,
            closing(http.client.HTTPConnection(web)) as line,
            grpc.insecure_channel(remote) as channel,
        ):
            spent = _in_blocks(_over_http(line, token), _over_grpc(channel, token), lambda _id: bare(1))
    by_http, by_grpc, floor = (1e3 * median(times) for times in spent)
    return [
        figure
        for how, took in (("HTTP/JSON", by_http), ("gRPC", by_grpc))
        for figure in (
            Figure(f"one id over {how}", took, None, "ms", floor, "bare round trip to a party"),
            Figure(f"one id over {how}, beyond the round trip", took - floor, BOUND, "ms"),
        )
    ]


def _in_blocks(*what: Ask) -> list[list[float]]:
    """Seconds of every request; the first block warms up."""
    spent: list[list[float]] = [[] for _ in what]
    for block in range(BLOCKS + 1):
        for ask, times in zip(what, spent, strict=True):
            for number in range(REQUESTS):
                id = f"person-{(block * REQUESTS + number) % SERVED:06}"
                begin = time.perf_counter()
                ask(id)
                if block:
                    times.append(time.perf_counter() - begin)
    return spent


@contextmanager
def _serving(run: Path) -> Iterator[tuple[str, str, str]]:
    """A service with its parties: the addresses for HTTP and gRPC, and a token."""
    web, remote = (f"127.0.0.1:{free_port()}" for _ in range(2))
    command = [sys.executable, "-m", "colonnade", "serve", str(run), "--http", web, "--grpc", remote]
    command += ["--rate", "1000000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_until_healthy(web, process)
            yield web, remote, (run / "serve.tokens").read_text(encoding="utf-8").split()[1]
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_until_healthy(web: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{web}/healthz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the service did not become healthy")


def _over_http(line: http.client.HTTPConnection, token: str) -> Ask:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(id: str) -> None:
        line.request("POST", "/v1/predict", json.dumps({"ids": [id]}), headers)
        assert json.load(line.getresponse())["predictions"][0]["known"]

    return ask


def _over_grpc(channel: grpc.Channel, token: str) -> Ask:
    call = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
    metadata = (("authorization", f"Bearer {token}"),)

    def ask(id: str) -> None:
        assert call(PredictRequest(ids=[id]), metadata=metadata).predictions[0].known

    return ask


@contextmanager
def _bare(keys: Path, size: int) -> Iterator[Callable[[int], None]]:
    """Exchanges frames of so many bytes with a bare gRPC echo, as often as it is told."""
    make_federation(keys, ["party"])
    peer = exchange.Peer("bare", keys)
    try:
        with asyncio.Runner() as loop:
            end = exchange.Bare(keys, peer.port, size)
            loop.run(end.open())
            yield lambda times: loop.run(end.exchange(times))
            loop.run(end.close())
    finally:
        peer.end()
