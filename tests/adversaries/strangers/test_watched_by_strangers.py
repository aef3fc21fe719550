"""Strangers at the metrics and the health service: another host's name, half a header, silent connections.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from colonnade.cli.run.health import state
from colonnade.common.observability import web_gate as gate
from colonnade.common.observability.exposition import Exposition
from colonnade.common.observability.health import Health
from colonnade.reports.dashboard import Current, Site
from tests.cli.read.reports import leave

pytestmark = pytest.mark.real_time

MANY = 40


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost:9", 200), ("127.0.0.1", 200), ("[::1]:9", 200), ("evil.example", 403), ("evil.example:9400", 403),
     ("127.0.0.1.evil.example", 403), ("[", 403), ("10.0.0.1", 403)],
)  # fmt: skip
def test_a_web_site_resolving_to_loopback_reads_no_metrics(host: str, expected: int) -> None:
    with Exposition("127.0.0.1:0", "server.metrics") as shown:
        assert status(f"http://{shown.address}/metrics", host) == expected


def test_on_another_interface_every_name_is_answered() -> None:
    with Exposition("0.0.0.0:0", "server.metrics") as shown:
        port = shown.address.rpartition(":")[2]
        assert status(f"http://127.0.0.1:{port}/metrics", "server.internal") == 200
        assert status(f"http://127.0.0.1:{port}/elsewhere", "server.internal") == 404


@contextmanager
def held(port: int, words: bytes) -> Iterator[None]:
    lines = []
    try:
        for _ in range(MANY):
            lines.append(socket.create_connection(("127.0.0.1", port), 20))
            lines[-1].sendall(words)
        yield
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize("words", [b"", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half"])
def test_incomplete_requests_do_not_block_the_metrics(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "affordable", lambda _most: MANY // 2)
    with Exposition("127.0.0.1:0", "server.metrics") as shown, held(int(shown.address.rpartition(":")[2]), words):
        assert status(f"http://{shown.address}/metrics", "localhost") == 200


async def test_nor_the_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "affordable", lambda _most: MANY // 2)

    site = Site(Current(leave(tmp_path / "run")), "127.0.0.1:0")
    where = await site.start()
    with held(int(where.rpartition(":")[2]), b"GET / HT"):
        assert await asyncio.to_thread(status, f"http://{where}/", "localhost") == 200
        assert await asyncio.to_thread(status, f"http://{where}/", "evil.example") == 403
    await site.stop()


@pytest.mark.parametrize("words", [b"", b"PRI * HT"])
def test_silent_connections_do_not_block_the_health_service(words: bytes) -> None:
    with Health("127.0.0.1:0", "server.health") as health, held(int(health.address.rpartition(":")[2]), words):
        assert state(health.address, "", 20) == "SERVING"


def test_the_health_service_closes_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.common.observability.health.PATIENCE", 0.3)
    with Health("127.0.0.1:0", "server.health") as health:
        host, _, port = health.address.rpartition(":")
        with socket.create_connection((host, int(port)), 20) as line:
            while line.recv(1000):  # its own first words, then the end
                pass
