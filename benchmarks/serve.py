"""One id after the other, asked of `colonnade serve` over HTTP/JSON and gRPC, against a bare round trip to a party.

The service and its three parties are processes; the caller keeps its connection. The floor is a bare gRPC echo between
the server and one party, with mutual TLS and the bytes of a party's response, measured in turn with the requests.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc

from benchmarks import exchange, predict
from benchmarks.report import Figure, median
from benchmarks.runs import ROOT
from colonnade.common.crypto.pki.federation import make_federation
from colonnade.common.wire._generated.serving_pb2 import PredictReply, PredictRequest
from colonnade.server.prediction.serving.grpc_service import METHOD

IDS = 2000
REQUESTS, BLOCKS = 40, 12
PATIENCE = 120.0  # seconds until the parties are present
BOUND = 5.0  # milliseconds beyond the bare round trip

Ask = Callable[[str], None]


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        predict.write(folder, IDS)
        command = [sys.executable, "-m", "colonnade", "up", str(folder / "run.yaml"), "--out", str(folder / "run")]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        with (
            _serving(folder / "run") as (web, remote, token),
            _bare(folder / "keys") as bare,
            closing(http.client.HTTPConnection(web)) as line,
            grpc.insecure_channel(remote) as channel,
        ):
            spent = _in_turn(_over_http(line, token), _over_grpc(channel, token), bare)
    by_http, by_grpc, floor = (1e3 * median(times) for times in spent)
    return [
        figure
        for how, took in (("HTTP/JSON", by_http), ("gRPC", by_grpc))
        for figure in (
            Figure(f"one id over {how}", took, None, "ms", floor, "bare round trip to a party"),
            Figure(f"one id over {how}, beyond the round trip", took - floor, BOUND, "ms"),
        )
    ]


def _in_turn(*what: Ask) -> list[list[float]]:
    """Seconds of every request; the first block warms up."""
    spent: list[list[float]] = [[] for _ in what]
    for block in range(BLOCKS + 1):
        for ask, times in zip(what, spent, strict=True):
            for number in range(REQUESTS):
                id = f"person-{(block * REQUESTS + number) % IDS:06}"
                begin = time.perf_counter()
                ask(id)
                if block:
                    times.append(time.perf_counter() - begin)
    return spent


@contextmanager
def _serving(run: Path) -> Iterator[tuple[str, str, str]]:
    """A service with its parties: the addresses for HTTP and gRPC, and a token."""
    web, remote = (f"127.0.0.1:{_free_port()}" for _ in range(2))
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
def _bare(keys: Path) -> Iterator[Ask]:
    make_federation(keys, ["party"])
    peer = exchange.Peer("bare", keys)
    try:
        with asyncio.Runner() as loop:
            end = exchange.Bare(keys, peer.port, predict.WIDTH * 4 + 60)
            loop.run(end.open())
            yield lambda _id: loop.run(end.exchange(1))
            loop.run(end.close())
    finally:
        peer.end()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
